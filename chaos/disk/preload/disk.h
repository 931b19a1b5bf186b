/* A disk that misbehaves on order, and that knows what it would hold if the power went: shared declarations.

   What it is for, what it promises and how it is asked stands in chaos/disk/__init__.py. The parts:
     names.c   what files there are, which of the program's descriptors lead to them, and the log of changes of names
     ranges.c  sets of byte ranges
     platter.c what a file would hold after a loss of power: the copy on the platter, moved on by each sync
     orders.c  what has been ordered: errors, short writes, delays
     calls.c   the calls of the C library that are stood in for

   One lock guards everything but the calls into the kernel themselves. */

#ifndef HOLDFAST_CHAOS_DISK_H
#define HOLDFAST_CHAOS_DISK_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define END_OF_FILE INT64_MAX

struct range {
    int64_t from, to;
    struct range *next;
};

void range_add(struct range **ranges, int64_t from, int64_t to);
/* Whether anything was taken out. */
int range_subtract(struct range **ranges, int64_t from, int64_t to);
void range_free(struct range **ranges);

/* A sync that is under way: what it has to make durable. */
struct flight {
    struct range *ranges;
    unsigned long number;
    struct flight *next;
};

/* A file of the disk, for as long as the process lives; its id tells it from later files of the same name. */
struct file {
    long id;
    char *path; /* below the root; NULL when it has no name any more */
    struct range *dirty;   /* written, and not synced */
    struct range *lost;    /* the write to the platter failed; the page cache calls it clean and has it still */
    struct flight *flights; /* the newest first */
    unsigned long error;   /* of writing back, counted; see `open_file.error_known` */
    int error_number;
    struct file *next;
};

enum kind { NOT_OURS = 0, A_FILE, A_DIRECTORY };

/* An open file of the program. Linux tells each of them once of an error of writing back. */
struct open_file {
    enum kind kind;
    struct file *file;
    char *directory;
    unsigned long error_known;
    int synchronous; /* O_SYNC or O_DSYNC */
    dev_t device;
    ino_t inode;
};

/* What is done to one call. */
struct verdict {
    int error;        /* errno, or 0 */
    ssize_t at_most;  /* bytes of a write; -1: all */
    long delay_us;
};

/* ---- names.c */
void disk_lock(void);
void disk_unlock(void);
void disk_wait(void);                         /* until a sync has ended; lets go of the lock meanwhile */
void disk_sync_ended(void);
void disk_begin(void);                        /* idempotent; before anything else */
const char *disk_side(void);                  /* NULL: there is no disk in this process */
int disk_mirrors(void);
/* The path below the root, into `below`; 0 if it lies elsewhere. The root itself is ".". */
int disk_path(int directory, const char *path, char below[PATH_MAX]);
struct file *disk_file(const char *below);    /* by name; NULL: not known */
struct file *disk_file_made(const char *below, ino_t inode);
int disk_may_be_ours(int descriptor);         /* without the lock: 0 if it certainly is not */
struct open_file *disk_open_file(int descriptor); /* NULL: not ours */
void disk_opened(int descriptor, const char *below, int flags);
void disk_closed(int descriptor);
void disk_renamed(const char *from, const char *to);
void disk_unlinked(const char *below);
void disk_made_directory(const char *below);
void disk_removed_directory(const char *below);
long disk_names_changed(void);                /* how often, so far */
void disk_names_synced(const char *directory, long up_to);
void disk_note_lost(const struct file *file, int64_t from, int64_t to);
void disk_note_found(const struct file *file, int64_t from, int64_t to);
void disk_give_up(const char *why);           /* a defect here, or a call that is not stood in for: ends the process */

/* ---- platter.c; all with the lock held */
void platter_wrote(struct file *file, int descriptor, int64_t from, int64_t to);
void platter_truncated(struct file *file, int64_t before, int64_t after);
struct flight *platter_sync_begins(struct file *file);
struct flight *platter_sync_of(struct file *file, int64_t from, int64_t to); /* just written */
void platter_sync_failed(struct file *file, int error);
/* A sync waits for what others are writing already, too. Lets go of the lock meanwhile. */
void platter_wait_for_earlier(struct file *file, const struct flight *flight);
void platter_sync_ends(struct file *file, struct flight *flight, int descriptor);
void platter_forget_cached(struct file *file, int descriptor, int64_t from, int64_t to);

/* ---- orders.c */
/* Reads new orders if there are any. `fresh` bytes: how many of a write need new room. With the lock held. */
struct verdict orders_for(const char *call, const char *below, ssize_t bytes, int64_t fresh);

/* ---- the kernel, past what calls.c stands in for */
int real_open(const char *path, int flags, mode_t mode);
ssize_t real_pread(int descriptor, void *data, size_t size, int64_t at);
ssize_t real_pwrite(int descriptor, const void *data, size_t size, int64_t at);
ssize_t real_write(int descriptor, const void *data, size_t size);
int real_truncate(int descriptor, int64_t size);
int real_close(int descriptor);

#endif
