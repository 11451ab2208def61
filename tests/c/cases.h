/* Runs named cases, each in a process of its own with a time limit, so that one that crashes or
 * hangs is reported and the next starts afresh. Every case prints `ok NAME` or `FAILED NAME`. */
#ifndef ERD_TESTS_CASES_H
#define ERD_TESTS_CASES_H

#include "node.h"

struct test_case {
    const char *name;
    void (*run)(void);
    unsigned limit_seconds;
};

static const char *provider = "erd";

/* How much longer cases may take than on a machine of its own: ERD_TEST_SLOWNESS, for emulated ones. */
static inline unsigned slowness(void)
{
    const char *times = getenv("ERD_TEST_SLOWNESS");
    return times ? (unsigned)strtoul(times, NULL, 10) : 1;
}

static inline bool run_case(const struct test_case *test)
{
    int status = 0;
    pid_t child;
    fflush(NULL);
    child = fork();
    check(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) {
        setpgid(0, 0);
        alarm(test->limit_seconds * slowness());
        test->run();
        fflush(NULL);
        _exit(0);
    }
    check(waitpid(child, &status, 0) == child, "waitpid: %s", strerror(errno));
    kill(-child, SIGKILL);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        printf("ok %s\n", test->name);
        return true;
    }
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        printf("FAILED %s: no end within %u s\n", test->name, test->limit_seconds);
    else if (WIFSIGNALED(status))
        printf("FAILED %s: %s\n", test->name, strsignal(WTERMSIG(status)));
    else
        printf("FAILED %s\n", test->name);
    return false;
}

/* Usage of such a program: [-p PROVIDER] [-l] [CASE...]; without a case it runs all. */
static inline int run_cases(const struct test_case *tests, size_t count, int argc, char **argv)
{
    bool good = true, listing = false;
    int option;
    while ((option = getopt(argc, argv, "p:l")) != -1) {
        check(option == 'p' || option == 'l', "usage: %s [-p PROVIDER] [-l] [CASE...]", argv[0]);
        if (option == 'p')
            provider = optarg;
        else
            listing = true;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < count; i++) {
        bool wanted = optind == argc;
        for (int at = optind; at < argc; at++)
            wanted |= strcmp(argv[at], tests[i].name) == 0;
        if (wanted && listing)
            printf("%s\n", tests[i].name);
        else if (wanted)
            good &= run_case(&tests[i]);
    }
    return good ? 0 : 1;
}

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

#endif
