/* SPDX-License-Identifier: Apache-2.0 */
/* Made by make_golden.py with torch 2.15.0; do not edit. */
enum { GOLDEN_COUNT = 8, GOLDEN_STEPS = 200 };

struct golden_other {
    const char *name;
    enum hst_optimizer optimizer;
    struct hst_adam_hyper hyper;
    struct {
        double p[GOLDEN_COUNT], state[GOLDEN_COUNT];
    } f64, f32;
};

static const struct golden_other golden_others[] = {
    {"sgd",
     HST_OPTIMIZER_SGD,
     {0.01, 0.9, 0.0, 1.0, 0.01},
     {{-0x1.301541f0ebdbdp+0, -0x1.58f039a69f0adp-1, 0x1.1156d3e13b7ebp-4, 0x1.c6f28ed7a5f17p-3,
          0x1.22673ba703558p+0, -0x1.2aa9d82748d18p-1, -0x1.23d1c59f94ca8p-7, 0x1.46b33774260bfp-4},
      {0x1.bcdf1d06383dep-3, -0x1.4c2afa8ddcd98p-4, 0x1.96bba0f1a2bc8p-9, 0x1.75c42e84f7c48p-6,
          0x1.439d9ea7ce087p-2, -0x1.12f82126e28f8p-3, -0x1.0ec20dc0a0248p-10, 0x1.1a417bb004412p-7}},
     {{-0x1.30153c0000000p+0, -0x1.58f0340000000p-1, 0x1.1156d80000000p-4, 0x1.c6f2880000000p-3,
          0x1.22673e0000000p+0, -0x1.2aa9de0000000p-1, -0x1.23d1be0000000p-7, 0x1.46b3340000000p-4},
      {0x1.bcdf180000000p-3, -0x1.4c2af40000000p-4, 0x1.96bb9e0000000p-9, 0x1.75c4200000000p-6,
          0x1.439da80000000p-2, -0x1.12f8200000000p-3, -0x1.0ec1fc0000000p-10, 0x1.1a41760000000p-7}}},
    {"sgd_no_decay",
     HST_OPTIMIZER_SGD,
     {0.001, 0.99, 0.0, 1.0, 0.0},
     {{-0x1.43bba2150ef99p+0, -0x1.c6e333d14cd18p-1, 0x1.514a2c218e276p-4, 0x1.13fecbce650bcp-2,
          0x1.81217f69e2de2p-1, -0x1.80ccf01e1f2e8p-1, -0x1.4f9d85b5b86b4p-7, 0x1.8cb0851f2da03p-4},
      {0x1.cc2e3f2b49b6ap+0, -0x1.2585479a0fb25p-1, 0x1.fbf20612a1ec4p-8, 0x1.bf99a430618b3p-10,
          -0x1.2c47a0180aeccp+2, -0x1.ac6e215def770p-2, 0x1.27bb4e8217db1p-8, 0x1.9fb2dd3cea77fp-10}},
     {{-0x1.43bba40000000p+0, -0x1.c6e32e0000000p-1, 0x1.514a340000000p-4, 0x1.13fec40000000p-2,
          0x1.8121780000000p-1, -0x1.80cd020000000p-1, -0x1.4f9d8e0000000p-7, 0x1.8cb0880000000p-4},
      {0x1.cc2e620000000p+0, -0x1.2585500000000p-1, 0x1.fbf2560000000p-8, 0x1.bf99b00000000p-10,
          -0x1.2c47aa0000000p+2, -0x1.ac6e2e0000000p-2, 0x1.27bb780000000p-8, 0x1.9fb2d40000000p-10}}},
    {"adagrad",
     HST_OPTIMIZER_ADAGRAD,
     {0.01, 0.0, 0.0, 1e-10, 0.01},
     {{-0x1.f29bb5cfd07c3p-1, -0x1.beaa20b81e88cp-1, 0x1.a5f45e774a760p-8, 0x1.0d34f6d9b4d8ep-4,
          0x1.9e236bb50f05fp-1, -0x1.6c71f97d1138ap-1, -0x1.98f659ceb8683p-7, -0x1.1c2638e907d0fp-8},
      {0x1.b8afbc6a1eef8p+5, 0x1.422a1948b0515p-2, 0x1.0301eef7131e7p-10, 0x1.91dcab4097477p-12,
          0x1.0e80d81801d21p+6, 0x1.292c4b75e9fd1p-2, 0x1.ead119409f1e8p-11, 0x1.95e2a8f54da35p-17}},
     {{-0x1.f29bb80000000p-1, -0x1.beaa220000000p-1, 0x1.a5f4640000000p-8, 0x1.0d35060000000p-4,
          0x1.9e237e0000000p-1, -0x1.6c71f00000000p-1, -0x1.98f6500000000p-7, -0x1.1c26360000000p-8},
      {0x1.b8afbe0000000p+5, 0x1.422a1a0000000p-2, 0x1.0301f00000000p-10, 0x1.91dcb20000000p-12,
          0x1.0e80dc0000000p+6, 0x1.292c4c0000000p-2, 0x1.ead1100000000p-11, 0x1.95e2b00000000p-17}}},
};
