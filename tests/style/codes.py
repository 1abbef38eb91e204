#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Is there a test for each code that a message can carry?

    codes.py ROOT

REACHED names, for every row of docs/errors.md, a test that brings the program or a part of it to
say that code, and looks for it: a file below tests/ and a function, whose text must name the code
as a number or by its constant. A code without one, a function that is gone or does not know the
code, and a line for a code that is gone are breaches. So is a code without a row that a constant
of a header has or a message of a source names: `hoistway explain` has its texts from the rows.
"""
import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from style import walk  # noqa: E402

REACHED = {
    101: ('e2e/failures.py', 'test_io_uring_that_was_demanded_is_not_replaced'),
    104: ('e2e/failures.py', 'test_without_o_direct_the_page_cache_takes_over_and_it_is_said'),
    105: ('e2e/failures.py', 'test_a_store_directory_without_permission_is_refused'),
    106: ('tools/hf/test_read.c', 'a_file_that_shrinks_or_changes_is_an_error_not_a_signal'),
    107: ('tools/cli/program.py', 'test_outputs'),
    108: ('tools/cli/plan_rates.py',
          'test_rates_measured_beside_other_work_are_said_and_soon_forgotten'),
    201: ('e2e/device.py', 'test_a_device_that_is_not_there_is_told_in_one_line'),
    202: ('e2e/device.py', 'test_a_card_that_is_full_is_told_with_its_numbers'),
    203: ('e2e/device.py', 'test_failures_while_training_are_the_devices'),
    204: ('kernels/blas.py', 'test_a_core_that_can_not_be_had_is_refused_before_it_runs'),
    301: ('tools/cli/program.py', 'test_budgets'),
    302: ('tools/cli/program.py', 'test_budgets'),
    303: ('tools/cli/plan.py', 'test_where_nothing_else_fits_layers_are_computed_again'),
    304: ('e2e/device.py', 'test_how_many_units_the_card_holds_is_told'),
    305: ('e2e/device.py', 'test_a_gpu_updates_what_it_is_asked_to'),
    306: ('tools/cli/plan.py', 'test_what_does_not_fit_as_a_whole_is_used_in_slices'),
    307: ('tools/cli/plan.py', 'test_train_leaves_the_share_that_plan_names'),
    308: ('tools/cli/plan.py', 'test_fewer_threads_update_where_memory_carries_no_more'),
    309: ('tools/cli/room.py', 'test_layers_keep_their_activations_where_there_is_room'),
    310: ('tools/cli/test_activity.c', 'without_a_thread_it_is_told_and_all_else_goes_on'),
    311: ('e2e/device.py', 'test_what_is_left_of_the_cards_memory_is_measured_and_told'),
    312: ('tools/cli/start_up.py', 'test_train_tells_before_it_begins_where_starting_takes_long'),
    401: ('tools/cli/program.py', 'test_an_unknown_verb_names_the_nearest'),
    402: ('tools/cli/program.py', 'test_values_of_the_command_line'),
    403: ('tools/cli/program.py', 'test_values_of_the_command_line'),
    404: ('tools/cli/ds_config.py',
          'test_a_text_that_is_no_hjson_is_refused_by_its_place'),
    405: ('tools/cli/ds_config.py',
          'test_keys_that_are_unknown_or_refused_name_what_to_do'),
    406: ('tools/cli/plan_machine.py',
          'test_a_hundred_malformed_ones_are_each_one_line_with_its_place'),
    410: ('tools/cli/program.py', 'test_models'),
    411: ('tools/hf/test_index.c', 'an_index_that_contradicts_its_files_is_refused'),
    412: ('tools/cli/program.py', 'test_models'),
    413: ('tools/cli/program.py', 'test_models'),
    414: ('tools/cli/program.py', 'test_models'),
    415: ('tools/hf/test_read.c', 'what_the_model_lacks_is_refused_by_name'),
    420: ('tools/cli/program.py', 'test_data'),
    421: ('tools/cli/program.py', 'test_data'),
    422: ('tools/data/test_data.c', 'an_id_beyond_the_vocabulary_is_refused_at_open'),
    423: ('tools/data/test_data.c', 'malformed_token_files_are_refused'),
    425: ('python/test_prep.py', 'test_what_the_template_refuses_is_told_in_its_words'),
    426: ('python/test_prep.py',
          'test_control_tokens_in_a_rows_own_text_are_counted_and_placed'),
    427: ('python/test_prep.py', 'test_another_tokenizer_is_refused'),
    428: ('python/test_verb.py', 'assert_refused'),
    424: ('e2e/data/evaluation.py', 'test_other_data_is_not_compared_with'),
    429: ('e2e/data/samples.py',
          'test_samples_come_with_evaluations_and_without_them_at_the_end'),
    430: ('tools/cli/program.py', 'test_outputs'),
    501: ('tools/cli/program.py', 'test_one_of_several_is_refused'),
    502: ('comm/bench.py', 'test_what_can_not_be_joined_is_told'),
    503: ('e2e/rank_alike.py', 'refused'),
    504: ('e2e/rank_ends.py', 'test_a_rank_that_does_not_is_named'),
    505: ('comm/nccl.py', 'test_a_library_that_is_too_old'),
    506: ('engine/ranks.py', 'test_with_too_little_shared_memory_all_send_messages'),
    507: ('comm/ranks.py', 'test_an_error_of_mpi_is_no_rank_that_is_gone'),
    508: ('tools/cli/plan_paper.py', 'accounted'),
    601: ('engine/step/test_orders.c', 'count_warnings'),
    602: ('tools/cli/program.py', 'test_a_run_tells_which_updates_it_chose'),
    610: ('store/test_refusals.c', 'what_others_could_change_is_refused'),
    611: ('store/test_refusals.c', 'a_store_that_is_open_is_not_opened_again'),
    612: ('store/test_refusals.c', 'other_formats_are_refused'),
    613: ('store/test_refusals.c', 'files_that_do_not_belong_together_are_refused'),
    614: ('e2e/resume.py', 'test_damage_is_told_with_its_place_and_found_again_by_the_next_open'),
    615: ('hostile/hostile.py', 'test_other_data_than_the_store_was_trained_on'),
    616: ('store/test_refusals.c', 'a_directory_with_anything_else_is_not_taken'),
    617: ('store/test_refusals.c', 'a_store_that_was_never_committed_is_none'),
    620: ('engine/store/test_versions.c', 'note_interval'),
    621: ('e2e/resume.py', 'test_after_a_kill_the_next_run_says_that_it_has_read_every_byte'),
    622: ('e2e/resume.py', 'test_a_first_signal_leaves_a_version_and_exit_code_75'),
    623: ('e2e/store/ckpt.py',
          'test_a_disk_with_no_room_for_a_copy_is_told_and_the_run_goes_on'),
    624: ('e2e/host_math.py', 'test_a_resume_under_another_core_says_so_and_goes_on'),
    701: ('e2e/failures.py', 'test_weights_that_are_not_finite_stop_the_run_with_the_step_named'),
    702: ('tools/cli/trained.py', 'test_a_loss_that_stays_up_is_told_once'),
}


def constants(root):
    """{code: names} of all headers."""
    names = {}
    for path in walk(root):
        if not path.endswith('.h'):
            continue
        with open(os.path.join(root, path), encoding='utf-8') as f:
            for name, code in re.findall(r'\b((?:FAIL|CLI|HST_E)_\w+) = (\d{3}),', f.read()):
                names.setdefault(int(code), set()).add(name)
    return names


def named(root):
    """{code: sources} whose texts name it: W104 in that of a warning."""
    sources = {}
    for path in walk(root):
        if path.split('/')[0] in ('engine', 'python', 'tools') and path.endswith(('.c', '.py')):
            with open(os.path.join(root, path), encoding='utf-8') as f:
                for code in re.findall(r'\b[EWI]([1-9]\d\d)\b', f.read()):
                    sources.setdefault(int(code), set()).add(path)
    return sources


def body(text, name):
    """The text of a function of C or Python, '' where there is none."""
    begin = re.search(rf'^(?:static [\w *]*?\b|( *)def ){name}\(', text, re.M)
    if not begin:
        return ''
    rest = text[begin.start():]
    indent = begin.group(1)
    end = re.search(r'^}' if indent is None else rf'\n {{0,{len(indent)}}}(?:def|@|class) ',
                    rest[1:], re.M)
    return rest[:end.end()] if end else rest


def breach(root, code, names):
    """What is wrong with the line of a code, or None."""
    if code not in REACHED:
        return 'no test is named for it'
    path, function = REACHED[code]
    at = os.path.join(root, 'tests', path)
    if not os.path.exists(at):
        return f'{path} is not there'
    with open(at, encoding='utf-8') as f:
        text = body(f.read(), function)
    if not text:
        return f'{path} has no {function}'
    known = rf'(?<!\d){code}(?!\d)|' + '|'.join(rf'\b{name}\b' for name in names) + r'|(?!)'
    return None if re.search(known, text) else f'{function} of {path} does not know it'


def main():
    root = sys.argv[1]
    with open(os.path.join(root, 'docs', 'errors.md'), encoding='utf-8') as f:
        codes = [int(code) for code in re.findall(r'^\| (\d{3}) \|', f.read(), re.M)]
    names = constants(root)
    breaches = [(code, breach(root, code, names.get(code, ()))) for code in codes]
    breaches += [(code, 'docs/errors.md has no row for it') for code in REACHED
                 if code not in codes]
    breaches += [(code, f'docs/errors.md has no row for it, but {", ".join(sorted(who))} has it')
                 for users in (names, named(root)) for code, who in sorted(users.items())
                 if code not in codes]
    for code, what in breaches:
        if what:
            print(f'tests/style/codes.py: {code}: {what}')
    print(f'{len(codes)} codes')
    return 1 if not codes or any(what for _, what in breaches) else 0


if __name__ == '__main__':
    sys.exit(main())
