/* What the compiled engine works on. compiled.py reads names and types of all fields from here. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDING 1e-12   /* activities that would end within this fraction of the current time end together */
#define WIDE 8           /* uses of a class, beyond which to look through all of them for each takes too long */
#define NONE (-1)        /* the end of a list */
#define NOT_WAITING (-2) /* for a turn */

typedef int64_t i64;
typedef int32_t i32;

enum { COMPUTE_ENDED, COMPUTE_STARTS, TURN_OVER, LATENCY_OVER, STAGES }; /* an event is task * STAGES + stage */

/* An entry of a queue by (key, tie): of a timer (time, order of setting, event), of a device (priority, task), of a
 * class (level at which an activity ends, activity). */
typedef struct { i64 key, tie, event; } Entry;

/* What of a task is needed often, two to a cache line. */
typedef struct { double delay_s; i32 device, route, activity_class, waits, first_successor, end_successor; } Task;

/* first: the ready task that comes first, or NONE; the others wait in a queue. launched_s: when its host has launched all
 * that it has taken. */
typedef struct { i64 first_priority, first, first_queued, queued, is_idle, is_woken, in_flight; double launched_s; } Device;

/* Activities that use the same resources, and their queue by level. held_at, seen: of a filling. */
typedef struct {
    double cap, held_at;
    i64 active, first_ending, seen;
    i32 first_use, end_use, stale;
} Class;

/* A class on a resource, where it has a place among users while it has activities. */
typedef struct { double weight; i32 resource, place; } Use;

/* A use whose class has activities. load: of all of these; other: the only other resource of a class without a cap that
 * has exactly two, else NONE. */
typedef struct { double load; i32 class_number, other, use; } User;

/* What a user is limited to. */
typedef struct { double rate, load; } Limit;

typedef struct { double capacity, load; i64 first_user, users, seen; i32 is_changed, is_full; } Resource;

typedef struct { i64 first, last; } Line;

typedef struct {
    /* What is run: see Columns. Classes from fixed_classes on are for core work, taken and given back as it comes. */
    i64 tasks, devices, resources, fixed_classes, has_launches, has_lines, has_overlap, has_turns, has_cores;
    double overlap_rate;
    const i64 *device_of_task, *route, *priority, *activity_class, *dependency_start, *dependencies, *host_waits;
    const i64 *line_of_route, *touched_start, *touched, *neighbour_start, *neighbour, *spare, *core_start, *core_device;
    const double *delay_s, *work, *bytes, *launch_s, *turn_s, *core_s_per_byte, *alone_s;

    /* The clock: timers, the events of this instant from head to tail, when to look for activities that end, and when
     * the first does. */
    double now_s, due_s, first_end_s;
    i64 order, timers, head, tail, wake_allowed, wake_requested, effort;
    Entry *timer;
    i64 *instant;

    double *start_s, *end_s;
    Task *task;
    Device *device;
    Entry *ready;
    i64 ready_transfers, woken_count;
    i64 *ready_transfer, *woken;
    i32 *first_successor, *successor;

    /* By class: its rate, what each activity has been served, and until when. By resource: the share at which it is
     * full. ends_s: the next end of each class, and levels of `level_size` above: see ROW. */
    double *rate, *served, *since_s, *share, *ends_s;
    const i64 *level_size;

    /* changed, followed: resources whose share may be another. stale: classes whose rate or next end may be another.
     * wide_classes: how many active ones are WIDE. */
    Class *class_;
    Use *use;
    User *user;
    Resource *resource;
    Entry *ending, *followed;
    Limit *limit;
    i64 changed_count, followed_count, stale_count, epoch, wide_classes;
    i64 *changed, *visited, *stale, *capped, *done;

    /* Only where the runtime asks for it. */
    Line *line;
    i32 *next_in_line;
    i64 turn_first, turn_last, core_works, free_classes, next_class;
    i64 *turn_next, *turn_previous, *parts, *core_task, *free_class;
} Run;
