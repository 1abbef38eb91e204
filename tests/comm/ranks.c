/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks OPTION...: what ranks.py runs under mpirun. Adds the gradients of --ways ways, whatever the
 * number of ranks, and prints a hash of each sum, which must not depend on it.
 *
 *   --ways W  --messages  --piece BYTES  --limit SECONDS
 *   --more BYTES  of memory beside each row, whole pages
 *   --number      ranks take the numbers of the opposite order first
 *   --expose      rows lie in memory of its own, which it exposes, not in the comm's
 *   --fault stop|late|die|leave|order|alloc|expose|abort  what rank 1 does in the middle of it
 *   --link BYTES  a second, which a model of a network carries: prints the rates that are measured
 *   --fault roots                               each rank broadcasts its own then
 *   --fault broken    a call of MPI returns an error to rank 1
 *   --fault nap       rank 1 stops for some seconds; signs of life are counted
 *   --fault linger    rank 1 is late, and rank 0 stays for some seconds when it has failed
 *   --fault fill      others fill /dev/shm when rank 1 is about to take its room for the second row
 *   --fault stays|stays-stopped                 rank 1 does not close; others run into the limit
 *   --fault pause                               all ranks stay there for some seconds
 */
#include "comm/comm.h"
#include "comm/exact.h"
#include "comm/rates.h"
#include "comm/report.h"
#include "comm/wrap.h"
#include "sum_bytes.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Rows begin elsewhere on each rank, SHIFT bytes further on. */
enum {
    ROW = 600000,
    ROW_OF_BLOCKS = 96 * 6144,
    WAYS_MOST = 12,
    FAILED = 3,
    PAGE = 4096,
    SHIFT = 192
};
enum { NAP_S = 8, LINGER_S = 4, OTHER_ERROR = 16 /* Open MPI's MPI_ERR_OTHER */ };
enum { AREA = (ROW * 4 / PAGE + 2) * PAGE, FENCE = 0x77 }; /* what rows need; what is beside it */

static struct {
    struct comm *comm;
    struct comm_info info;
    uint32_t ways;
    bool uniform;
    uint64_t net, between, in_place; /* bytes that are expected */
    const char *fault;
    double link_bytes_per_s; /* 0: the transport as it is */
    bool exposes;
    size_t area_bytes;
    char *area[2];  /* [area_bytes], of comm_alloc or exposed, a page of FENCE on both sides then */
    bool shared[2]; /* of these */
    char *in, *whole;        /* [ROW] f32, in these */
    uint32_t room_taken;     /* how often it was asked for */
    atomic_uint said, heard; /* signs of life: begun to send, and to wait for */
    atomic_bool broken;      /* a share is MPI's error from here on */
} g;

static bool is_fault(const char *name)
{
    return g.fault && strcmp(g.fault, name) == 0;
}

static _Noreturn void fail(const char *what, int rc)
{
    struct comm_failure failure = {0};
    struct report report = {0};
    if (g.comm) {
        comm_failure(g.comm, &failure);
        comm_report(g.comm, &report, 0, rc);
    }
    fprintf(stderr, "rank %u: %s: %d error[E%d] %s (names %d)\n", g.info.rank, what, rc,
            report.error.code, failure.text, failure.rank);
    if (is_fault("linger")) {
        const unsigned before = g.said;
        sleep(LINGER_S);
        fprintf(stderr, "rank %u: %u signs of life after that\n", g.info.rank, g.said - before);
    }
    fflush(NULL);
    if (g.comm)
        comm_abort(g.comm, FAILED);
    _exit(FAILED);
}

static void check(int rc, const char *what)
{
    if (rc)
        fail(what, rc);
}

static void fill_shared_memory(void)
{
    static char some[1 << 16];
    const int fd = open("/dev/shm/others", O_WRONLY | O_CREAT | O_EXCL, 0600);
    check(fd < 0 ? -errno : 0, "filling /dev/shm");
    memset(some, 1, sizeof some);
    while (write(fd, some, sizeof some) > 0)
        ;
    close(fd);
}

/* ---- calls of the plugin come by here ---- */

/* Signs of life between nodes are messages of nothing. */
static void *of_mpi(const char *name)
{
    return dlsym(dlopen("libmpi.so.40", RTLD_LAZY | RTLD_NOLOAD), name);
}

int MPI_Isend(const void *buffer, int count, void *type, int to, int tag, void *comm,
              void **request);
int MPI_Isend(const void *buffer, int count, void *type, int to, int tag, void *comm,
              void **request)
{
    int (*real)(const void *, int, void *, int, int, void *, void **) = NULL;
    *(void **)&real = of_mpi("MPI_Isend");
    g.said += !buffer && count == 0;
    return real(buffer, count, type, to, tag, comm, request);
}

int MPI_Irecv(void *buffer, int count, void *type, int from, int tag, void *comm, void **request);
int MPI_Irecv(void *buffer, int count, void *type, int from, int tag, void *comm, void **request)
{
    int (*real)(void *, int, void *, int, int, void *, void **) = NULL;
    *(void **)&real = of_mpi("MPI_Irecv");
    g.heard += !buffer && count == 0;
    return real(buffer, count, type, from, tag, comm, request);
}

int MPI_Iallgather(const void *own, int count, void *type, void *all, int each, void *each_type,
                   void *comm, void **request);
int MPI_Iallgather(const void *own, int count, void *type, void *all, int each, void *each_type,
                   void *comm, void **request)
{
    int (*real)(const void *, int, void *, void *, int, void *, void *, void **) = NULL;
    *(void **)&real = of_mpi("MPI_Iallgather");
    return g.broken ? OTHER_ERROR : real(own, count, type, all, each, each_type, comm, request);
}

int madvise(void *memory, size_t bytes, int advice)
{
    if (advice == MADV_POPULATE_WRITE && g.info.rank == 1 && is_fault("fill") &&
        ++g.room_taken == 2)
        fill_shared_memory();
    return (int)syscall(SYS_madvise, memory, bytes, advice);
}

/* The ticket by its address: the call that writes it stands in the same expression. */
static void finish(int rc, const uint64_t *ticket, const char *what)
{
    check(rc, what);
    check(comm_wait(g.comm, *ticket), what);
}

static void say(const char *what, const void *bytes, size_t count)
{
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
    if (g.info.rank == 0)
        printf("%s %016llx\n", what, (unsigned long long)hash);
}

/* Shards of integers are whole blocks, of as many ranks as there may be. */
static size_t row_of(const struct hst_sum_tree *tree)
{
    return tree->quant ? ROW_OF_BLOCKS : ROW;
}

/* Of this rank's ways, each rounded to its type. */
static void *own_sum(const struct hst_sum_tree *tree, uint32_t first, uint32_t count)
{
    void *way[WAYS_MOST];
    float *value = malloc(ROW * sizeof *value);
    for (uint32_t i = 0; i < count; i++) {
        const enum hst_dtype type = hst_sum_type(tree, (struct hst_sum_node){first + i, 1});
        const struct hst_sum_tree two = {2, 1, HST_F32, type, 0};
        const void *const in[] = {value, value};
        fill_way(first + i, value, ROW);
        way[i] = malloc(ROW * sizeof *value);
        /* value/2 + value/2 is exact: a sum of two f32 ways, whose root is of the type wanted */
        for (size_t k = 0; k < ROW; k++)
            value[k] *= 0.5f;
        check(hst_host_sum_ways(&(struct hst_sum_ways){
                  .tree = two, .each = 1, .inputs = 2, .in = in, .out = way[i], .count = ROW}),
              "rounding");
        if (tree->quant)
            check(give_back(tree, first + i, way[i], row_of(tree)), "what integers give back");
    }
    check(hst_host_sum_ways(&(struct hst_sum_ways){.tree = *tree,
                                                   .first = first,
                                                   .each = 1,
                                                   .inputs = count,
                                                   .in = (const void *const *)way,
                                                   .out = g.in,
                                                   .count = row_of(tree)}),
          "own sum");
    for (uint32_t i = 0; i < count; i++)
        free(way[i]);
    free(value);
    return g.in;
}

/* in_place: the sum comes to lie in the own shard of what is handed over, if the types are one. */
static void add_up(const struct hst_sum_tree *tree, const char *name, bool in_place)
{
    const uint32_t each = tree->ways / g.info.ranks;
    const size_t shard = row_of(tree) / g.info.ranks, bytes = hst_dtype_bytes(tree->root);
    const size_t own = g.info.rank * shard * bytes;
    const struct hst_sum_node node = {g.info.rank * each, each};
    uint64_t ticket;
    in_place = in_place && hst_sum_type(tree, node) == tree->root;
    own_sum(tree, g.info.rank * each, each);
    memset(g.whole, 0x55, ROW * sizeof(float));
    check(
        comm_exchange(g.comm, name, tree, g.in, (in_place ? g.in : g.whole) + own, shard, &ticket),
        "exchange");
    if (in_place) {
        check(comm_wait(g.comm, ticket), "exchange");
        memcpy(g.whole + own, g.in + own, shard * bytes);
    } /* else both are begun before either has ended */
    finish(comm_gather(g.comm, name, g.whole, shard * bytes, &ticket), &ticket, "gather");
    say(name, g.whole, row_of(tree) * bytes);
}

/* Every rank's shard, as its integers give it back: by the host's own calls, on each rank. */
static void check_integers(size_t shard, float *value)
{
    unsigned char *codes = malloc(shard);
    float *scales = malloc(hst_quant_scales(shard) * sizeof *scales);
    float *want = malloc(shard * sizeof *want);
    for (uint32_t r = 0; r < g.info.ranks; r++) {
        fill_way(r, value, ROW);
        check(hst_host_quantise(
                  &(struct hst_quantise){HST_INT8, HST_F32, shard, value, codes, scales}),
              "to integers");
        check(hst_host_dequantise(
                  &(struct hst_dequantise){HST_INT8, HST_F32, shard, codes, scales, want}),
              "back");
        if (memcmp(want, g.whole + r * shard * sizeof *want, shard * sizeof *want) != 0)
            fail("a gather by integers brought other values", -EIO);
    }
    free(codes);
    free(scales);
    free(want);
}

static void gather_integers(void)
{
    const uint32_t ranks = g.info.ranks, nodes = g.info.nodes;
    const size_t shard = ROW / ranks / HST_QUANT_BLOCK * HST_QUANT_BLOCK;
    const bool in_place = g.shared[1] && g.uniform;
    const uint64_t from = in_place ? nodes - 1 : ranks - g.info.locals;
    const uint64_t part = comm_quant_bytes(shard);
    const uint64_t in_node = (ranks - 1 - from) * (in_place ? shard * sizeof(float) : part);
    float *exact = malloc(ROW * sizeof *exact);
    uint64_t ticket;
    fill_way(g.info.rank, exact, ROW);
    memset(g.whole, 0x55, ROW * sizeof *exact);
    finish(comm_gather_quantised(g.comm, "integers", exact, g.whole, shard, HST_F32, &ticket),
           &ticket, "gather by integers");
    check_integers(shard, exact);
    free(exact);
    g.net += from * part + in_node;
    g.between += from * part;
    g.in_place += in_place ? in_node : 0;
}

/* Each rank of a node has a part, which the others take. */
static void gather_near(void)
{
    const size_t part = ROW / WAYS_MOST, bytes = part * sizeof(float);
    float *want = malloc(ROW * sizeof *want);
    uint64_t ticket;
    fill_way(g.info.rank, want, ROW);
    memcpy(g.in, want, bytes);
    memset(g.whole, 0x55, ROW * sizeof *want);
    finish(comm_gather_near(g.comm, "near", g.in, g.whole, bytes, &ticket), &ticket, "near");
    for (uint32_t i = 0; i < g.info.locals; i++) {
        fill_way(g.info.rank - g.info.local + i, want, ROW);
        if (memcmp((const unsigned char *)want, g.whole + i * bytes, bytes) != 0)
            fail("a gather within the node brought other values", -EIO);
    }
    free(want);
    g.net += (g.info.locals - 1) * bytes;
    g.in_place += g.shared[0] && g.uniform ? (g.info.locals - 1) * bytes : 0;
}

static void small_ones(void)
{
    struct exact_sum sum = {0};
    uint32_t ids[WAYS_MOST], text = g.info.rank == g.info.ranks - 1 ? 77 : 0;
    uint64_t ticket;
    const size_t shard = ROW / g.info.ranks;
    for (size_t i = 0; i < shard; i++)
        exact_add(&sum, ((float *)g.whole)[g.info.rank * shard + i]);
    exact_settle(&sum);
    finish(comm_sum64(g.comm, "norm", sum.number, EXACT_NUMBERS, &ticket), &ticket, "sum64");
    const double total = exact_value(&sum);
    say("exact", &total, sizeof total);
    finish(comm_bcast(g.comm, "text", &text, sizeof text, g.info.ranks - 1, &ticket), &ticket,
           "bcast");
    finish(comm_share(g.comm, "ids", &g.info.rank, ids, sizeof *ids, &ticket), &ticket, "share");
    for (uint32_t r = 0; r < g.info.ranks; r++)
        if (ids[r] != r || text != 77)
            fail("share or bcast brought other bytes", -EIO);
}

/* This process, until one that it starts for that lets it go on. */
static void nap(void)
{
    const pid_t self = getpid();
    if (fork() == 0) {
        sleep(NAP_S);
        kill(self, SIGCONT);
        _exit(0);
    }
    raise(SIGSTOP);
    sleep(2); /* it hears of what came meanwhile */
}

/* Rank 1 goes wrong; or all give others time for something. */
static void misbehave(void)
{
    uint64_t ticket;
    if (g.fault && strcmp(g.fault, "pause") == 0) {
        if (g.info.rank == 0)
            printf("# pause\n");
        fflush(stdout);
        sleep(4);
        return;
    }
    if (g.fault && strcmp(g.fault, "roots") == 0)
        finish(comm_bcast(g.comm, "own", g.whole, 8, g.info.rank, &ticket), &ticket, "bcast");
    if (is_fault("broken")) {
        uint32_t ids[WAYS_MOST];
        g.broken = g.info.rank == 1;
        finish(comm_share(g.comm, "ids", &g.info.rank, ids, sizeof *ids, &ticket), &ticket,
               "share");
    }
    if (g.fault && strcmp(g.fault, "expose") == 0)
        check(comm_expose(g.comm, g.area[0], g.info.rank == 1 ? 2ul * PAGE : PAGE), "other size");
    if (g.fault && strcmp(g.fault, "alloc") == 0) {
        void *memory;
        check(comm_alloc(g.comm, g.info.rank == 1 ? 5000 : 4000, &memory), "other size");
    }
    if (!g.fault || g.info.rank != 1 || strncmp(g.fault, "stays", 5) == 0 ||
        strcmp(g.fault, "fill") == 0)
        return;
    if (strcmp(g.fault, "stop") == 0)
        raise(SIGSTOP);
    else if (is_fault("late") || is_fault("linger"))
        sleep(600);
    else if (is_fault("nap"))
        nap();
    else if (strcmp(g.fault, "die") == 0)
        raise(SIGKILL);
    else if (strcmp(g.fault, "leave") == 0)
        _exit(0);
    else if (strcmp(g.fault, "abort") == 0)
        comm_abort(g.comm, 9);
    else
        finish(comm_share(g.comm, "other", &ticket, g.whole, sizeof ticket, &ticket), &ticket,
               "another operation");
}

/* What a sum and its gather bring to this rank, and from other nodes. */
static void expect_bytes(const struct hst_sum_tree *tree)
{
    const uint32_t ranks = g.info.ranks, locals = g.info.locals, nodes = g.info.nodes;
    const uint32_t own = g.info.rank, head = own - g.info.local;
    const uint32_t group = g.uniform && nodes > 1 ? locals & -locals : 1, first = own - own % group;
    const uint64_t shard = row_of(tree) / ranks, out = hst_dtype_bytes(tree->root);
    const bool here = g.shared[0] && g.uniform; /* values are read where they lie */
    g.net += (ranks - 1) * shard * out;
    g.between += (g.uniform && g.info.shared ? nodes - 1 : ranks - locals) * shard * out;
    /* one hop, of groups of one rank; or two */
    const uint64_t exchanged =
        here && nodes == 1 ? shard * (sum_bytes(tree, ranks, 1, 0, ranks) -
                                      sum_bytes(tree, ranks, 1, own, own + 1))
                           : sent_bytes(tree, ranks, group, 0, ranks, shard) -
                                 sent_bytes(tree, ranks, group, first, first + group, shard);
    g.net += exchanged;
    g.between += sent_bytes(tree, ranks, group, 0, ranks, shard) -
                 sent_bytes(tree, ranks, group, head, head + locals, shard);
    const uint64_t inner =
        (ranks / group) * (here ? shard * (sum_bytes(tree, ranks, 1, first, first + group) -
                                           sum_bytes(tree, ranks, 1, own, own + 1))
                                : sent_bytes(tree, ranks, 1, first, first + group, shard) -
                                      sent_bytes(tree, ranks, 1, own, own + 1, shard));
    g.net += inner;
    if (here)
        g.in_place += nodes > 1 ? inner : exchanged;
    if (g.shared[1] && g.uniform)
        g.in_place += (ranks - nodes) * shard * out;
}

static void check_bytes(void)
{
    comm_info(g.comm, &g.info);
    if (g.info.net_bytes == g.net && g.info.between_bytes == g.between &&
        g.info.in_place_bytes == g.in_place)
        return;
    fprintf(stderr,
            "took in %llu bytes, %llu from other nodes, %llu in place; expected %llu, %llu, %llu\n",
            (unsigned long long)g.info.net_bytes, (unsigned long long)g.info.between_bytes,
            (unsigned long long)g.info.in_place_bytes, (unsigned long long)g.net,
            (unsigned long long)g.between, (unsigned long long)g.in_place);
    fail("net_bytes is wrong", -EIO);
}

/* Whether all nodes have as many ranks. */
static bool is_uniform(void)
{
    uint32_t locals[WAYS_MOST];
    uint64_t ticket;
    finish(comm_share(g.comm, "locals", &g.info.locals, locals, sizeof *locals, &ticket), &ticket,
           "share");
    for (uint32_t r = 0; r < g.info.ranks; r++)
        if (locals[r] != locals[0])
            return false;
    return true;
}

static void open_all(int argc, char **argv)
{
    struct comm_config config = {.size = sizeof config};
    struct comm_failure failure;
    char why[200];
    bool numbered = false;
    g.ways = 4;
    g.area_bytes = AREA;
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--messages") == 0)
            config.messages = true;
        else if (strcmp(argv[i], "--more") == 0)
            g.area_bytes += (size_t)atoi(next);
        else if (strcmp(argv[i], "--number") == 0)
            numbered = true;
        else if (strcmp(argv[i], "--expose") == 0)
            g.exposes = true;
        else if (strcmp(argv[i], "--ways") == 0)
            g.ways = (uint32_t)atoi(next);
        else if (strcmp(argv[i], "--piece") == 0)
            config.piece_bytes = (size_t)atoi(next);
        else if (strcmp(argv[i], "--limit") == 0)
            config.limit_s = atof(next);
        else if (strcmp(argv[i], "--link") == 0)
            g.link_bytes_per_s = atof(next);
        else if (strcmp(argv[i], "--fault") == 0)
            g.fault = next;
    }
    if (hst_launch_read(NULL, NULL, &config.launch, why)) {
        fprintf(stderr, "%s\n", why);
        exit(2);
    }
    if (comm_open(&config, &g.comm, &failure)) {
        fprintf(stderr, "%s\n", failure.text);
        exit(FAILED);
    }
    comm_info(g.comm, &g.info);
    if (!numbered)
        return;
    const uint32_t rank = g.info.ranks - 1 - g.info.rank;
    check(comm_number(g.comm, rank), "number");
    comm_info(g.comm, &g.info);
    if (g.info.rank != rank)
        fail("another number than was asked for", -EINVAL);
}

static void tell_signs(void)
{
    if (is_fault("nap"))
        printf("# rank %u said %u heard %u\n", g.info.rank, g.said, g.heard);
}

static char *take_area(void)
{
    void *memory;
    if (!g.exposes) {
        check(comm_alloc(g.comm, g.area_bytes, &memory), "alloc");
        return memory;
    }
    memory = mmap(NULL, g.area_bytes + 2 * PAGE, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(memory == MAP_FAILED ? -ENOMEM : 0, "mmap");
    char *area = (char *)memory + PAGE;
    memset(memory, FENCE, PAGE);
    memset(area + g.area_bytes, FENCE, PAGE);
    check(comm_expose(g.comm, area, g.area_bytes), "expose");
    return area;
}

static void take_rows(void)
{
    for (int i = 0; i < 2; i++) {
        g.area[i] = take_area();
        comm_info(g.comm, &g.info);
        g.shared[i] = g.info.shared;
    }
    g.in = g.area[0] + (size_t)SHIFT * g.info.rank;
    g.whole = g.area[1] + (size_t)SHIFT * (g.info.ranks - 1 - g.info.rank);
}

/* What is the comm's is given back; what was exposed is no matter of comm_free. */
static void free_rows(void)
{
    if (!g.exposes)
        check(comm_free(g.comm, g.area[0]), "free");
    if (comm_free(g.comm, g.area[0]) != -EINVAL)
        fail("memory can be freed that is not the comm's", -EIO);
}

/* Behind the comm's end it is still there, and nothing beside it was touched. */
static void check_exposed(void)
{
    for (int i = 0; g.exposes && i < 2; i++) {
        const char *before = g.area[i] - PAGE, *after = g.area[i] + g.area_bytes;
        for (int k = 0; k < PAGE; k++)
            if (before[k] != FENCE || after[k] != FENCE)
                fail("a page beside what was exposed is another", -EIO);
        check(munmap(g.area[i] - PAGE, g.area_bytes + 2 * PAGE), "munmap");
    }
}

/* The rates of the transport, behind a link whose operations take 2 ms and their bytes. */
static int print_rates(void)
{
    const struct comm_model link = {.bytes_per_s = g.link_bytes_per_s, .latency_s = 2e-3};
    struct comm_rates rates;
    char how[160];
    check(comm_model_wrap(&g.comm, &link), "model");
    check(comm_rates_measure(g.comm, HST_F32, &rates, how), "rates");
    printf("rank %u: %a %a %a %a %a\n", g.info.rank, rates.gather, rates.exchange, rates.between,
           rates.operations, rates.operations_between);
    if (g.info.rank == 0)
        printf("# %s\n", how);
    check(comm_close(&g.comm), "close");
    return 0;
}

int main(int argc, char **argv)
{
    static const struct hst_sum_tree kinds[] = {{1, 1, HST_F32, HST_F32, 0},
                                                {1, 1, HST_BF16, HST_BF16, 0},
                                                {1, 1, HST_F16, HST_F16, 0},
                                                {1, 1, HST_F32, HST_F32, HST_INT8},
                                                {1, 1, HST_F32, HST_BF16, HST_INT4}};
    static char kept[PAGE];
    open_all(argc, argv);
    if (g.link_bytes_per_s > 0)
        return print_rates();
    take_rows();
    if (g.info.rank == 0)
        printf("# %s, %u ranks on %u nodes, shared %d %s\n", g.info.transport, g.info.ranks,
               g.info.nodes, g.info.shared, g.info.why_not_shared);
    g.uniform = is_uniform();
    for (int t = 0; t < 5; t++)
        for (uint32_t hop = 2; hop <= 8; hop *= 4) {
            char name[40];
            struct hst_sum_tree tree = kinds[t];
            tree.ways = g.ways;
            tree.hop = hop;
            snprintf(name, sizeof name, "kind-%d-hop-%u", t, hop);
            add_up(&tree, name, hop == 2);
            expect_bytes(&tree);
            if (t == 0 && hop == 2) {
                small_ones();
                misbehave();
            }
        }
    gather_integers();
    gather_near();
    check_bytes();
    free_rows();
    tell_signs();
    if (g.fault && strcmp(g.fault, "stays") == 0 && g.info.rank == 1)
        sleep(600);
    if (g.fault && strcmp(g.fault, "stays-stopped") == 0 && g.info.rank == 1)
        raise(SIGSTOP);
    memcpy(kept, g.whole, sizeof kept);
    check(comm_close(&g.comm), "close");
    if (g.exposes && memcmp(kept, g.whole, sizeof kept) != 0)
        fail("what was exposed has gone with the comm", -EIO);
    check_exposed();
    return g.comm != NULL;
}
