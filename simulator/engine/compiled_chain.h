/* The longest chain of dependencies, for reports; it runs nothing. */

enum { UNSEEN = -1, BEGUN = -2 }; /* in place of an end, which is at least 0 */

/* When the last task ends if each begins once all that it waits for have ended. `next` holds dependency_start, `end`
 * UNSEEN and `stack` room for every task; what a task waits for is done before it, whatever their order. A cycle is
 * cut where it is met. */
double longest_chain(
    i64 tasks, const i64 *dependency_start, const i64 *dependencies, const double *seconds, double *end, i64 *next,
    i64 *stack)
{
    double longest = 0.0;
    for (i64 first = 0; first < tasks; first++) {
        i64 depth = 0;
        if (end[first] == UNSEEN) { stack[depth++] = first; end[first] = BEGUN; }
        while (depth) {
            i64 task = stack[depth - 1];
            if (next[task] < dependency_start[task + 1]) {
                i64 before = dependencies[next[task]++];
                if (end[before] == UNSEEN) { stack[depth++] = before; end[before] = BEGUN; }
                continue;
            }
            double begin = 0.0;
            for (i64 i = dependency_start[task]; i < dependency_start[task + 1]; i++)
                begin = most(begin, end[dependencies[i]]);
            end[task] = begin + seconds[task];
            longest = most(longest, end[task]);
            depth--;
        }
    }
    return longest;
}
