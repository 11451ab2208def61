/* The processes of an example end together, however one of them ends. */
#ifndef TOGETHER_H
#define TOGETHER_H

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Process 0 ends when another has failed, whatever process 0 waits for. */
static void child_ended(int number)
{
    int status, saved = errno;
    (void)number;
    while (waitpid(-1, &status, WNOHANG) > 0)
        if (status != 0)
            _exit(1);
    errno = saved;
}

/* Forks the others, which end when process 0 does. Answers the own number, from 0. */
static int fork_together(int processes)
{
    struct sigaction action = {.sa_handler = child_ended, .sa_flags = SA_RESTART | SA_NOCLDSTOP};
    pid_t first = getpid(), child;
    sigaction(SIGCHLD, &action, NULL);
    for (int number = 1; number < processes; number++) {
        child = fork();
        if (child == 0) {
            if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != first)
                _exit(1);
            return number;
        }
        if (child < 0) {
            perror("fork");
            exit(1);
        }
    }
    return 0;
}

/* Waits for those that this process has forked, if any. Answers whether one of them failed. */
static int others_failed(void)
{
    int status = 0, failed = 0;
    pid_t ended;
    /* The signal's handler waits for most of them: here the loop runs until there are no more. */
    while ((ended = wait(&status)) > 0 || (ended < 0 && errno == EINTR))
        failed |= ended > 0 && status != 0;
    return failed;
}

#endif
