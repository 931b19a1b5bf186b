/* What files there are and which descriptors lead to them; and the log of changes of names, for chaos/disk/platter.py.

   HOLDFAST_DISK_ROOT names the directory that is the disk, HOLDFAST_DISK_SIDE one outside of it that is prepared by
   `chaos.disk.Disk`: `names` lists the files that are there with their ids, `log` takes what happens, a line each:

     c id inode path    a file was made          m path    a directory was made
     u path             a name was removed       k path    a directory was removed
     r from to          a file was renamed
     s path n           the first n of the lines above, as far as this directory holds them, are durable
     l id from to       lost: the cache has it, the platter never will; f: it was written anew, or forgotten

   A line is written right behind what it tells. Whoever is killed in between leaves a disk that differs from its log;
   the reader of the log looks at the disk, too. */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "disk.h"

#define MOST_DESCRIPTORS 65536

static pthread_mutex_t the_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t a_sync_ended = PTHREAD_COND_INITIALIZER;
static pthread_once_t begun = PTHREAD_ONCE_INIT;
static const char *root, *side;
static size_t root_length;
static int mirrors;
static int log_file = -1;
static long next_id, changes;
static struct file *files;
static struct open_file table[MOST_DESCRIPTORS];

void disk_lock(void) { pthread_mutex_lock(&the_lock); }
void disk_unlock(void) { pthread_mutex_unlock(&the_lock); }
void disk_wait(void) { pthread_cond_wait(&a_sync_ended, &the_lock); }
void disk_sync_ended(void) { pthread_cond_broadcast(&a_sync_ended); }
const char *disk_side(void) { return side; }
int disk_mirrors(void) { return mirrors; }
long disk_names_changed(void) { return changes; }

void disk_give_up(const char *why) {
    char line[512];
    int size = snprintf(line, sizeof line, "disk on order: %s (%s)\n", why, strerror(errno));
    (void)!real_write(2, line, (size_t)size);
    abort();
}

static struct file *known(long id, const char *below, int whole) {
    struct file *file = calloc(1, sizeof *file);
    if (file == NULL || (file->path = strdup(below)) == NULL)
        disk_give_up("no memory");
    file->id = id;
    if (whole) /* an earlier process may have left something unsynced */
        range_add(&file->dirty, 0, END_OF_FILE);
    file->next = files;
    files = file;
    return file;
}

static struct file *by_id(long id) {
    for (struct file *file = files; file != NULL; file = file->next)
        if (file->id == id)
            return file;
    return NULL;
}

/* Lines: `n next-id`, `c id path`, `l id from to`. */
static void read_names(FILE *names) {
    char line[PATH_MAX + 64], path[PATH_MAX];
    long id;
    long long from, to;
    while (fgets(line, sizeof line, names) != NULL) {
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "n\t%ld", &id) == 1)
            next_id = id;
        else if (sscanf(line, "c\t%ld\t%4095[^\n]", &id, path) == 2)
            known(id, path, 1);
        else if (sscanf(line, "l\t%ld\t%lld\t%lld", &id, &from, &to) == 3 && by_id(id) != NULL)
            range_add(&by_id(id)->lost, from, to);
        else
            disk_give_up("a line of `names` is not understood");
    }
}

static void begin(void) {
    root = getenv("HOLDFAST_DISK_ROOT");
    const char *beside = getenv("HOLDFAST_DISK_SIDE");
    if (root == NULL || beside == NULL)
        return;
    root_length = strlen(root);
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/mirror", beside);
    mirrors = access(path, F_OK) == 0;
    snprintf(path, sizeof path, "%s/names", beside);
    int descriptor = real_open(path, O_RDONLY | O_CLOEXEC, 0);
    FILE *names = descriptor < 0 ? NULL : fdopen(descriptor, "r");
    if (names == NULL)
        disk_give_up("the side directory is not prepared");
    read_names(names);
    fclose(names);
    snprintf(path, sizeof path, "%s/log", beside);
    descriptor = real_open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    log_file = fcntl(descriptor, F_DUPFD_CLOEXEC, 512); /* out of the way of programs that count on low numbers */
    if (log_file < 0)
        disk_give_up("cannot open the log");
    real_close(descriptor);
    side = beside;
}

void disk_begin(void) { pthread_once(&begun, begin); }

static void say(const char *form, ...) {
    char line[2 * PATH_MAX + 64];
    va_list words;
    va_start(words, form);
    int size = vsnprintf(line, sizeof line, form, words);
    va_end(words);
    if (size >= (int)sizeof line || real_write(log_file, line, (size_t)size) != size)
        disk_give_up("cannot write the log");
}

/* ---- paths */

/* Takes "//", "." and ".." out, in place. */
static void normalise(char *path) {
    char *to = path;
    for (char *from = path; *from != 0;) {
        while (*from == '/')
            from++;
        size_t length = strcspn(from, "/");
        if (length == 2 && from[0] == '.' && from[1] == '.') {
            while (to > path && *--to != '/')
                ;
        } else if (length != 0 && !(length == 1 && from[0] == '.')) {
            *to++ = '/';
            memmove(to, from, length);
            to += length;
        }
        from += length;
    }
    *to = 0;
}

int disk_path(int directory, const char *path, char below[PATH_MAX]) {
    char whole[2 * PATH_MAX] = "";
    if (side == NULL || path == NULL || strlen(path) >= PATH_MAX)
        return 0;
    if (path[0] != '/') {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        ssize_t size = readlink(directory == AT_FDCWD ? "/proc/self/cwd" : link, whole, PATH_MAX - 1);
        if (size < 0)
            return 0;
        whole[size] = '/';
        whole[size + 1] = 0;
    }
    strcat(whole, path);
    normalise(whole);
    if (strncmp(whole, root, root_length) != 0 || (whole[root_length] != '/' && whole[root_length] != 0))
        return 0;
    snprintf(below, PATH_MAX, "%s", whole[root_length] == 0 ? "." : whole + root_length + 1);
    return 1;
}

/* ---- files and names */

struct file *disk_file(const char *below) {
    for (struct file *file = files; file != NULL; file = file->next)
        if (file->path != NULL && strcmp(file->path, below) == 0)
            return file;
    return NULL;
}

struct file *disk_file_made(const char *below, ino_t inode) {
    struct file *file = known(next_id++, below, 0);
    changes++;
    say("c\t%ld\t%lu\t%s\n", file->id, (unsigned long)inode, below);
    return file;
}

static void nameless(struct file *file) {
    if (file != NULL) {
        free(file->path);
        file->path = NULL;
    }
}

void disk_renamed(const char *from, const char *to) {
    struct file *file = disk_file(from);
    if (file == NULL)
        disk_give_up("a directory, or a file that nobody knew, was renamed");
    nameless(disk_file(to));
    free(file->path);
    if ((file->path = strdup(to)) == NULL)
        disk_give_up("no memory");
    changes++;
    say("r\t%s\t%s\n", from, to);
}

void disk_unlinked(const char *below) {
    nameless(disk_file(below));
    changes++;
    say("u\t%s\n", below);
}

void disk_made_directory(const char *below) {
    changes++;
    say("m\t%s\n", below);
}

void disk_removed_directory(const char *below) {
    changes++;
    say("k\t%s\n", below);
}

void disk_names_synced(const char *directory, long up_to) { say("s\t%s\t%ld\n", directory, up_to); }

void disk_note_lost(const struct file *file, int64_t from, int64_t to) {
    say("l\t%ld\t%lld\t%lld\n", file->id, (long long)from, (long long)to);
}

void disk_note_found(const struct file *file, int64_t from, int64_t to) {
    say("f\t%ld\t%lld\t%lld\n", file->id, (long long)from, (long long)to);
}

/* ---- descriptors */

int disk_may_be_ours(int descriptor) {
    return descriptor >= 0 && descriptor < MOST_DESCRIPTORS && table[descriptor].kind != NOT_OURS;
}

/* A descriptor may have been closed where nobody looked, and belong to something else by now. */
struct open_file *disk_open_file(int descriptor) {
    struct stat status;
    if (side == NULL || descriptor < 0 || descriptor >= MOST_DESCRIPTORS || table[descriptor].kind == NOT_OURS)
        return NULL;
    struct open_file *open_file = &table[descriptor];
    if (fstat(descriptor, &status) != 0 || status.st_dev != open_file->device || status.st_ino != open_file->inode) {
        open_file->kind = NOT_OURS;
        return NULL;
    }
    return open_file;
}

void disk_opened(int descriptor, const char *below, int flags) {
    struct stat status;
    if (descriptor >= MOST_DESCRIPTORS || fstat(descriptor, &status) != 0)
        disk_give_up("too many descriptors");
    struct open_file *open_file = &table[descriptor];
    memset(open_file, 0, sizeof *open_file);
    open_file->device = status.st_dev;
    open_file->inode = status.st_ino;
    open_file->synchronous = (flags & (O_SYNC | O_DSYNC)) != 0;
    if (S_ISDIR(status.st_mode)) {
        open_file->kind = A_DIRECTORY;
        open_file->directory = strdup(below); /* few; never freed */
        return;
    }
    open_file->kind = A_FILE;
    open_file->file = disk_file(below);
    if (open_file->file == NULL)
        open_file->file = disk_file_made(below, status.st_ino);
    open_file->error_known = open_file->file->error;
}

void disk_closed(int descriptor) {
    if (descriptor >= 0 && descriptor < MOST_DESCRIPTORS)
        table[descriptor].kind = NOT_OURS;
}
