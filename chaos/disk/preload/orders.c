/* What has been ordered. The file `orders` of the side directory is put in place anew, by a rename, whenever the orders
   change; it is looked at in every call. An order that stays keeps its count, which each process begins anew. One order a line, its words divided by tabs:

     number call pattern action value first every most

   A call is one of: read write sync sync-directory open rename unlink truncate. The pattern is a shell's, matched with
   the path below the root, in which `*` matches slashes, too. Of the calls that match, counted from 1, it strikes the
   first-th and each every-th after it, `most` times altogether (0: without end). What was struck is noted in `struck`. */

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "disk.h"

#define MOST_ORDERS 32

struct order {
    long number;
    char call[24], pattern[256], action[16];
    long value, first, every, most;
    long seen, struck;
};

static struct order orders[MOST_ORDERS];
static int order_count;
static struct timespec read_at;
static ino_t read_inode;

static int parse(char *line, struct order *order) {
    memset(order, 0, sizeof *order);
    return sscanf(line, "%ld\t%23[^\t]\t%255[^\t]\t%15[^\t]\t%ld\t%ld\t%ld\t%ld", &order->number, order->call,
                  order->pattern, order->action, &order->value, &order->first, &order->every, &order->most) == 8;
}

static void read_orders(const char *path) {
    char text[MOST_ORDERS * 400];
    int descriptor = real_open(path, O_RDONLY | O_CLOEXEC, 0);
    if (descriptor < 0)
        return;
    ssize_t size = real_pread(descriptor, text, sizeof text - 1, 0);
    real_close(descriptor);
    if (size < 0)
        disk_give_up("cannot read the orders");
    text[size] = 0;
    struct order fresh[MOST_ORDERS];
    int count = 0;
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n")) != NULL) {
        if (*line == 0)
            continue;
        if (count == MOST_ORDERS || !parse(line, &fresh[count]))
            disk_give_up("an order is not understood");
        for (int old = 0; old < order_count; old++)
            if (orders[old].number == fresh[count].number) {
                long value = fresh[count].value;
                fresh[count] = orders[old];
                if (strcmp(fresh[count].action, "room") != 0) /* what is left of the room is ours to know */
                    fresh[count].value = value;
            }
        count++;
    }
    memcpy(orders, fresh, sizeof(struct order) * (size_t)count);
    order_count = count;
}

static void look(void) {
    char path[PATH_MAX];
    struct stat status;
    snprintf(path, sizeof path, "%s/orders", disk_side());
    if (stat(path, &status) != 0 || (status.st_ino == read_inode && status.st_mtim.tv_sec == read_at.tv_sec &&
                                     status.st_mtim.tv_nsec == read_at.tv_nsec))
        return;
    read_inode = status.st_ino;
    read_at = status.st_mtim;
    read_orders(path);
}

static void note(const struct order *order, const char *call, const char *below) {
    char path[PATH_MAX], line[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/struck", disk_side());
    int size = snprintf(line, sizeof line, "%ld\t%s\t%s\n", order->number, call, below);
    int descriptor = real_open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (descriptor < 0 || real_write(descriptor, line, (size_t)size) != size)
        disk_give_up("cannot note that an order has struck");
    real_close(descriptor);
}

static void fill_up(struct order *order, ssize_t bytes, int64_t fresh, struct verdict *verdict) {
    if (fresh > order->value) {
        ssize_t fits = bytes - (ssize_t)(fresh - order->value);
        if (fits <= 0)
            verdict->error = ENOSPC;
        else if (verdict->at_most < 0 || fits < verdict->at_most)
            verdict->at_most = fits;
        fresh = order->value;
    }
    order->value -= fresh;
}

struct verdict orders_for(const char *call, const char *below, ssize_t bytes, int64_t fresh) {
    struct verdict verdict = {0, -1, 0};
    look();
    for (int number = 0; number < order_count; number++) {
        struct order *order = &orders[number];
        if (strcmp(order->call, call) != 0 || fnmatch(order->pattern, below, 0) != 0)
            continue;
        order->seen++;
        if (order->seen < order->first || (order->seen - order->first) % order->every != 0 ||
            (order->most != 0 && order->struck >= order->most))
            continue;
        order->struck++;
        if (strcmp(order->action, "kill") == 0)
            raise(SIGKILL);
        else if (strcmp(order->action, "error") == 0)
            verdict.error = (int)order->value;
        else if (strcmp(order->action, "short") == 0)
            verdict.at_most = order->value;
        else if (strcmp(order->action, "delay") == 0)
            verdict.delay_us += order->value;
        else if (strcmp(order->action, "room") == 0) {
            fill_up(order, bytes, fresh, &verdict);
            if (verdict.error == 0 && verdict.at_most < 0)
                continue;
        } else
            disk_give_up("an action is not known");
        note(order, call, below);
    }
    return verdict;
}
