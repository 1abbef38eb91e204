/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hoistway prep, watch and convert: verbs that are done in Python (python/README.md), with
 * transformers' own tokenizers and templates, with wandb and with yaml. Here is decided which
 * Python, and where the package is. This process becomes it.
 */
#include "cli/message/message.h"
#include "verbs/verbs.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* From the program's folder: of an installed one, of one in a build folder. */
static const char *const package_folders[] = {"../share/hoistway/python", "../../python"};

static bool own_folder(char folder[PATH_MAX])
{
    if (!realpath("/proc/self/exe", folder))
        return false;
    *strrchr(folder, '/') = '\0';
    return true;
}

/* The folder that holds the package; false: there is none beside the program. */
static bool find_package(char package[PATH_MAX])
{
    char own[PATH_MAX], path[PATH_MAX + 64];
    if (!own_folder(own))
        return false;
    for (size_t i = 0; i < sizeof package_folders / sizeof *package_folders; i++) {
        snprintf(path, sizeof path, "%s/%s/hoistway/prep.py", own, package_folders[i]);
        if (access(path, R_OK) == 0) {
            snprintf(path, sizeof path, "%s/%s", own, package_folders[i]);
            return realpath(path, package) != NULL;
        }
    }
    return false;
}

static bool is_program(const char *path)
{
    return access(path, X_OK) == 0;
}

/* This is what makes a Python that has the packages. An installed program has no ./run beside its
   files. */
static const char *how_to_install(const char *package)
{
    char run[PATH_MAX + 8];
    snprintf(run, sizeof run, "%s/../run", package);
    return access(run, X_OK) == 0
               ? "./run prep-install"
               : "python3 -m venv ENV && ENV/bin/pip install 'transformers>=4.57' tokenizers "
                 "jinja2 numpy, and then HOISTWAY_PYTHON=ENV/bin/python";
}

/* In this order: the user's word, what ./run prep-install made, the environment at hand, PATH's. */
static int choose_python(const char *package, char python[PATH_MAX], struct hst_error *error)
{
    const char *named = getenv("HOISTWAY_PYTHON"), *venv = getenv("VIRTUAL_ENV");
    if (named && *named) {
        snprintf(python, PATH_MAX, "%s", named);
        if (is_program(python))
            return 0;
        return fail(error, FAIL_PYTHON, -ENOENT,
                    "HOISTWAY_PYTHON is '%.200s', which cannot be run (%s). Fix: the path of a "
                    "python3 with transformers, or unset it; what makes one: %s.",
                    named, strerror(errno), how_to_install(package));
    }
    if (snprintf(python, PATH_MAX, "%s/../build/venv/bin/python", package) < PATH_MAX &&
        is_program(python))
        return 0;
    if (venv && *venv && snprintf(python, PATH_MAX, "%s/bin/python", venv) < PATH_MAX &&
        is_program(python))
        return 0;
    snprintf(python, PATH_MAX, "python3");
    return 0;
}

/* PYTHONPATH with the package first; the working directory is no place for modules. */
static bool set_paths(const char *package)
{
    const char *old = getenv("PYTHONPATH");
    const size_t room = strlen(package) + (old ? strlen(old) : 0) + 2;
    char *text = malloc(room);
    if (!text)
        return false;
    snprintf(text, room, "%s%s%s", package, old && *old ? ":" : "", old ? old : "");
    const bool set = setenv("PYTHONPATH", text, 1) == 0 && setenv("PYTHONSAFEPATH", "1", 1) == 0;
    free(text);
    return set;
}

/* Returns only where it fails. */
static int become(const char *package, const char *python, const char *verb, int argc, char **argv,
                  struct hst_error *error)
{
    char module[32];
    snprintf(module, sizeof module, "hoistway.%s", verb);
    const char **arguments = calloc((size_t)argc + 4, sizeof *arguments);
    if (!arguments)
        return fail(error, FAIL_PYTHON, -ENOMEM, "no memory to start %.200s. Fix: try again.",
                    python);
    arguments[0] = python;
    arguments[1] = "-m";
    arguments[2] = module;
    for (int i = 0; i < argc; i++)
        arguments[3 + i] = argv[i];
    execvp(python, (char *const *)arguments);
    const int native = errno;
    free(arguments);
    return fail(error, FAIL_PYTHON, -native,
                "%s needs Python, and %.200s cannot be run (%s). Fix: %s.", verb, python,
                strerror(native), how_to_install(package));
}

static int in_python(const char *verb, int argc, char **argv)
{
    struct hst_error error;
    char package[PATH_MAX], python[PATH_MAX];
    int rc = 0;
    if (!find_package(package))
        rc = fail(&error, FAIL_PYTHON, -ENOENT,
                  "the Python package of %s is not beside this program, as %s or %s. Fix: run the "
                  "program that ./run build made, or meson install.",
                  verb, package_folders[0], package_folders[1]);
    if (rc == 0)
        rc = choose_python(package, python, &error);
    if (rc == 0 && !set_paths(package))
        rc = fail(&error, FAIL_PYTHON, -ENOMEM, "no memory to start %.200s. Fix: try again.",
                  python);
    if (rc == 0)
        become(package, python, verb, argc, argv, &error);
    return cli_fail(&error);
}

int verb_prep(int argc, char **argv)
{
    return in_python("prep", argc, argv);
}

int verb_watch(int argc, char **argv)
{
    return in_python("watch", argc, argv);
}

int verb_convert(int argc, char **argv)
{
    return in_python("convert", argc, argv);
}
