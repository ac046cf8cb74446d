/* Queues and timers of the compiled engine. */

static double least(double a, double b) { return b < a ? b : a; }
static double most(double a, double b) { return b > a ? b : a; }

static int before(const Entry *a, const Entry *b) /* without branches, which would be guessed wrongly */
{
    return (a->key < b->key) | ((a->key == b->key) & (a->tie < b->tie));
}

static void push(Entry *heap, i64 *count, Entry entry)
{
    i64 i = (*count)++;
    for (; i > 0 && before(&entry, &heap[(i - 1) / 2]); i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = entry;
}

static Entry pop(Entry *heap, i64 *count)
{
    Entry top = heap[0], last = heap[--*count];
    i64 i = 0;
    for (i64 child; (child = 2 * i + 1) < *count; i = child) {
        child += child + 1 < *count && before(&heap[child + 1], &heap[child]);
        if (!before(&heap[child], &last)) break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return top;
}

static int ascending(const void *a, const void *b)
{
    i64 x = *(const i64 *)a, y = *(const i64 *)b;
    return (x > y) - (x < y);
}

static void sort(i64 *values, i64 count)
{
    for (i64 i = 1; i < count; i++)
        if (values[i] < values[i - 1]) { qsort(values, (size_t)count, sizeof *values, ascending); return; }
}

static int by_tie(const void *a, const void *b)
{
    i64 x = ((const Entry *)a)->tie, y = ((const Entry *)b)->tie;
    return (x > y) - (x < y);
}

/* Classes by the time at which their next activity ends: a heap in which each knows its place. */
static void due_put(Run *r, i64 place, i64 c) { r->due[place] = c; r->class_[c].due_place = (i32)place; }

static void due_sink(Run *r, i64 i, i64 c)
{
    double due_s = r->end_due_s[c];
    for (i64 child; (child = 2 * i + 1) < r->due_count; i = child) {
        if (child + 1 < r->due_count && r->end_due_s[r->due[child + 1]] < r->end_due_s[r->due[child]]) child++;
        if (!(r->end_due_s[r->due[child]] < due_s)) break;
        due_put(r, i, r->due[child]);
    }
    due_put(r, i, c);
}

static void due_sift(Run *r, i64 i, i64 c)
{
    double due_s = r->end_due_s[c];
    for (; i > 0 && due_s < r->end_due_s[r->due[(i - 1) / 2]]; i = (i - 1) / 2) due_put(r, i, r->due[(i - 1) / 2]);
    due_sink(r, i, c);
}

static void due_remove(Run *r, i64 c)
{
    i64 place = r->class_[c].due_place;
    if (place < 0) return;
    i64 last = r->due[--r->due_count];
    if (last != c) due_sift(r, place, last);
    r->class_[c].due_place = NONE;
}

/* Make the heap anew of all classes that have an end ahead. */
static void due_make(Run *r)
{
    r->due_count = 0;
    for (i64 c = 0; c < r->next_class; c++) {
        r->class_[c].due_place = NONE;
        if (r->class_[c].active && r->end_due_s[c] < INFINITY) due_put(r, r->due_count++, c);
    }
    for (i64 i = r->due_count / 2 - 1; i >= 0; i--) due_sink(r, i, r->due[i]);
}

/* ---- time ---- */

static void request_wake(Run *r)
{
    if (r->wake_allowed) { r->wake_allowed = 0; r->wake_requested = 1; }
}

static void set_timer(Run *r, double delay_s, i64 event)
{
    double at_s = r->now_s + delay_s;
    if (at_s == r->now_s) r->instant[r->tail++] = event;
    else push(r->timer, &r->timers, (Entry){at_s, r->order++, event});
}
