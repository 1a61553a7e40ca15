// The functions of a level. Each level*.cpp includes this file with LEVEL (its namespace) and WIDTH
// set, and a macro for what is written by its intrinsics: the compiler's own do not follow its pragmas.
// System headers are included before the pragmas, as nothing of theirs may be compiled for a level.

#include "tile.hpp"
#include "cascade.hpp"
#include "filter.hpp"
#include "uneven.hpp"
#include "smoother.hpp"
#include "fastest.hpp"

namespace LEVEL {

template <class Out>
void run_typed(Run& run, Int begin, Int end) {
    constexpr Engine* engines[3][2] = {
        {cascade<Out>, cascade_adjoint<Out>},
        {filter_rows<Out, Even<Out>>, filter_adjoint<Out, Even<Out>>},
        {filter_rows<Out, Uneven<Out>>, filter_adjoint<Out, Uneven<Out>>}};
    const Job& job = run.job;
    engines[!job.band ? 0 : job.table ? 1 : 2][job.adjoint](run, begin, end);
}

void run_part(Run& run, Int k, Int count) {
    const Job& job = run.job;
    if (job.smoother) return smoother_part(run, k, count);
    const Int items = Tiling(job).items(job), begin = items * k / count;
    const Int end = items * (k + 1) / count;
    (job.type ? run_typed<double> : run_typed<float>)(run, begin, end);
}

}  // namespace LEVEL
