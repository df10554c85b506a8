/* A thread that makes files durable without ever holding Python's interpreter lock (storage/flusher.py).
 *
 * A Python thread that returns from fdatasync first waits for the lock, behind an event loop that is busy with what
 * arrived meanwhile, and only then can say that the data are durable: up to a millisecond at 16 KB requests. This one
 * says so at once, by an eventfd that the loop watches.
 *
 * One submission at a time: after flusher_submit the caller waits for the eventfd, reads it and takes the result.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

struct flusher {
    pthread_t thread;
    sem_t submitted;
    int event_fd;
    /* The submission: written before `submitted` is posted, read after it is taken. -1: end. */
    const int *fds;
    int count;
    /* The result: written before the eventfd is, read after that. */
    int error;        /* errno of the flush that failed, or 0 */
    int failed_index; /* which file it was */
    int64_t taken_ns;
};

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void *run(void *argument) {
    struct flusher *f = argument;
    for (;;) {
        while (sem_wait(&f->submitted) != 0) { /* a signal */
        }
        if (f->count < 0) return NULL;
        int64_t began_ns = now_ns();
        f->error = 0;
        for (int i = 0; i < f->count; i++) {
            if (fdatasync(f->fds[i]) != 0) {
                f->error = errno;
                f->failed_index = i;
                break;
            }
        }
        f->taken_ns = now_ns() - began_ns;
        uint64_t one = 1;
        /* The counter cannot overflow: there is one result at a time. */
        while (write(f->event_fd, &one, sizeof one) != sizeof one) {
        }
    }
}

/* NULL where the system has no room for it. */
struct flusher *flusher_start(void) {
    struct flusher *f = calloc(1, sizeof *f);
    if (f == NULL) return NULL;
    f->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (f->event_fd < 0 || sem_init(&f->submitted, 0, 0) != 0 || pthread_create(&f->thread, NULL, run, f) != 0) {
        if (f->event_fd >= 0) close(f->event_fd);
        free(f);
        return NULL;
    }
    return f;
}

int flusher_event_fd(const struct flusher *f) { return f->event_fd; }

/* `fds` stay the caller's and unchanged until the result is there. */
void flusher_submit(struct flusher *f, const int *fds, int count) {
    f->fds = fds;
    f->count = count;
    sem_post(&f->submitted);
}

int flusher_error(const struct flusher *f) { return f->error; }
int flusher_failed_index(const struct flusher *f) { return f->failed_index; }
int64_t flusher_taken_ns(const struct flusher *f) { return f->taken_ns; }

/* After the last result was taken. */
void flusher_stop(struct flusher *f) {
    f->count = -1;
    sem_post(&f->submitted);
    pthread_join(f->thread, NULL);
    sem_destroy(&f->submitted);
    close(f->event_fd);
    free(f);
}
