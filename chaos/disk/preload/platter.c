/* What a file would hold after a loss of power.

   The rule: the copy of a file below `platter/` holds what was written before a sync that has succeeded, and nothing
   that the program has not at least begun to sync. Whoever is killed in the midst of a sync leaves a part of it there,
   as a real disk may.

   Errors of writing back are Linux': what was to be written counts as clean from then on, is still read from the page
   cache, and no later sync writes it; each open file is told once. So the ranges of such a sync are `lost`: not copied
   by later syncs, until they are written anew, and gone from what the program reads when it drops the cache. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <unistd.h>

#include "disk.h"

static char piece[1 << 18]; /* with the lock held */

static int side_file(const char *kind, const struct file *file) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s/%ld", disk_side(), kind, file->id) >= (int)sizeof path)
        disk_give_up("the side directory has too long a name");
    int descriptor = real_open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor < 0)
        disk_give_up("cannot open a file of the side directory");
    return descriptor;
}

static int64_t size_of(int descriptor) {
    struct stat status;
    if (fstat(descriptor, &status) != 0)
        disk_give_up("fstat failed");
    return status.st_size;
}

/* Bytes behind the end of `source` are zeros. */
static void copy(int source, int target, int64_t from, int64_t to) {
    while (from < to) {
        size_t size = to - from < (int64_t)sizeof piece ? (size_t)(to - from) : sizeof piece;
        ssize_t got = real_pread(source, piece, size, from);
        if (got < 0)
            disk_give_up("cannot read back what was written");
        memset(piece + got, 0, size - (size_t)got);
        if (real_pwrite(target, piece, size, from) != (ssize_t)size)
            disk_give_up("cannot write to the side directory");
        from += (int64_t)size;
    }
}

/* The program's descriptor may be open for writing only. */
static int for_reading(int descriptor) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    int reading = real_open(path, O_RDWR | O_CLOEXEC, 0);
    if (reading < 0)
        disk_give_up("cannot open a file of the disk once more");
    return reading;
}

void platter_wrote(struct file *file, int descriptor, int64_t from, int64_t to) {
    range_add(&file->dirty, from, to);
    if (range_subtract(&file->lost, from, to))
        disk_note_found(file, from, to);
    if (disk_mirrors() && from < to) {
        int reading = for_reading(descriptor), mirror = side_file("mirror", file);
        copy(reading, mirror, from, to);
        real_close(mirror);
        real_close(reading);
    }
}

void platter_truncated(struct file *file, int64_t before, int64_t after) {
    range_add(&file->dirty, before < after ? before : after, before < after ? after : before);
    if (range_subtract(&file->lost, after, END_OF_FILE))
        disk_note_found(file, after, END_OF_FILE);
    if (disk_mirrors()) {
        int mirror = side_file("mirror", file);
        if (real_truncate(mirror, after) != 0)
            disk_give_up("cannot truncate a mirror");
        real_close(mirror);
    }
}

static struct flight *flight_of(struct file *file, struct range *ranges) {
    struct flight *flight = malloc(sizeof *flight);
    if (flight == NULL)
        disk_give_up("no memory");
    static unsigned long number;
    flight->number = ++number;
    flight->ranges = ranges;
    flight->next = file->flights;
    file->flights = flight;
    return flight;
}

struct flight *platter_sync_begins(struct file *file) {
    struct range *ranges = file->dirty;
    file->dirty = NULL;
    return flight_of(file, ranges);
}

struct flight *platter_sync_of(struct file *file, int64_t from, int64_t to) {
    struct range *ranges = NULL;
    range_add(&ranges, from, to);
    range_subtract(&file->dirty, from, to);
    return flight_of(file, ranges);
}

static void lose(struct file *file, struct range **ranges) {
    for (struct range *range = *ranges; range != NULL; range = range->next) {
        range_add(&file->lost, range->from, range->to);
        disk_note_lost(file, range->from, range->to);
    }
    range_free(ranges);
}

void platter_sync_failed(struct file *file, int error) {
    lose(file, &file->dirty);
    for (struct flight *flight = file->flights; flight != NULL; flight = flight->next)
        lose(file, &flight->ranges);
    file->error += 1;
    file->error_number = error;
}

void platter_wait_for_earlier(struct file *file, const struct flight *flight) {
    for (;;) {
        struct flight *earlier = file->flights;
        while (earlier != NULL && earlier->number >= flight->number)
            earlier = earlier->next;
        if (earlier == NULL)
            return;
        disk_wait();
    }
}

void platter_sync_ends(struct file *file, struct flight *flight, int descriptor) {
    for (struct range *lost = file->lost; lost != NULL; lost = lost->next)
        range_subtract(&flight->ranges, lost->from, lost->to);
    int reading = for_reading(descriptor), platter = side_file("platter", file);
    int64_t size = size_of(reading);
    for (struct range *range = flight->ranges; range != NULL; range = range->next)
        copy(reading, platter, range->from, range->to < size ? range->to : size);
    if (real_truncate(platter, size) != 0)
        disk_give_up("cannot truncate a file of the platter");
    real_close(platter);
    real_close(reading);
    for (struct flight **at = &file->flights; *at != NULL; at = &(*at)->next) {
        if (*at == flight) {
            *at = flight->next;
            break;
        }
    }
    range_free(&flight->ranges);
    free(flight);
    disk_sync_ended();
}

void platter_forget_cached(struct file *file, int descriptor, int64_t from, int64_t to) {
    if (file->lost == NULL)
        return;
    int writing = for_reading(descriptor), platter = side_file("platter", file);
    int64_t size = size_of(writing);
    for (struct range *lost = file->lost; lost != NULL; lost = lost->next) {
        int64_t first = lost->from > from ? lost->from : from, last = lost->to < to ? lost->to : to;
        copy(platter, writing, first, last < size ? last : size);
    }
    real_close(platter);
    real_close(writing);
    if (range_subtract(&file->lost, from, to))
        disk_note_found(file, from, to);
}
