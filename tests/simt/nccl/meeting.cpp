/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The double of NCCL: where ranks meet. A communicator has a table in shared memory, which its
 * first rank makes, and each rank a slot for what it brings. Names follow from the id; all are
 * taken away as soon as everyone has them.
 */
#include "double.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using hst_nccl::Group;
using hst_nccl::Table;

/* Null where it is not there, or not as long as it has to be. */
static char *map(const std::string &name, size_t bytes, bool make)
{
    if (make)
        shm_unlink(name.c_str()); /* a run that was killed may have left one */
    const int fd = shm_open(name.c_str(), make ? O_RDWR | O_CREAT | O_EXCL : O_RDWR, 0600);
    if (fd < 0)
        return nullptr;
    if (make && ftruncate(fd, (off_t)bytes))
        hst_nccl::stop("%s: %s", name.c_str(), strerror(errno));
    const bool whole = lseek(fd, 0, SEEK_END) >= (off_t)bytes;
    void *memory =
        whole ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    return memory == MAP_FAILED ? nullptr : static_cast<char *>(memory);
}

Group::~Group()
{
    if (table)
        munmap(table, sizeof *table);
    for (char *memory : slot)
        if (memory)
            munmap(memory, SLOT_BYTES);
}

static std::string slot_name(const Group &group, int rank)
{
    return group.name + "-" + std::to_string(rank);
}

/* One that a killed run left names a process that is no more. */
static bool open_table(Group *group)
{
    if (group->table)
        return true;
    const bool make = group->rank == 0;
    char *memory = map(group->name, sizeof(Table), make);
    if (!memory)
        return false;
    Table *table = reinterpret_cast<Table *>(memory);
    const uint64_t open = table->open.load();
    if (!make && (!open || (kill((pid_t)open, 0) && errno == ESRCH))) {
        munmap(memory, sizeof(Table));
        return false;
    }
    group->table = table;
    group->slot[group->rank] = map(slot_name(*group, group->rank), hst_nccl::SLOT_BYTES, true);
    if (!group->slot[group->rank])
        hst_nccl::stop("no slot in /dev/shm: %s", strerror(errno));
    if (make)
        table->open = (uint64_t)getpid();
    return true;
}

bool hst_nccl::sit_down(Group *group, int device)
{
    if (!open_table(group))
        return false;
    Seat &own = group->own();
    if (!own.here) {
        own.device = device;
        snprintf(own.host, sizeof own.host, "%s", config().host.c_str());
        if (config().host.empty())
            gethostname(own.host, sizeof own.host - 1);
        own.here = 1;
    }
    if (!all_said(*group, [](Seat &seat) { return seat.here >= 1; }))
        return false;
    for (int r = 0; r < group->ranks; r++)
        if (!group->slot[r] && !(group->slot[r] = map(slot_name(*group, r), SLOT_BYTES, false)))
            stop("the slot of rank %d is gone", r);
    own.here = 2;
    if (!all_said(*group, [](Seat &seat) { return seat.here >= 2; }))
        return false;
    shm_unlink(slot_name(*group, group->rank).c_str());
    if (group->rank == 0)
        shm_unlink(group->name.c_str());
    return true;
}

bool hst_nccl::shares_device(const Group &group, int pair[2])
{
    for (int a = 0; a < group.ranks; a++)
        for (int b = a + 1; b < group.ranks; b++) {
            const Seat &one = group.table->seat[a], &other = group.table->seat[b];
            pair[0] = a;
            pair[1] = b;
            if (one.device == other.device && !strcmp(one.host, other.host))
                return true;
        }
    return false;
}
