// The functions of a level. Each level*.cpp includes this file with LEVEL (its namespace) and WIDTH
// set, and a macro for what is written by its intrinsics: the compiler's own do not follow its pragmas.
// What stands within a pragma includes no system header.

#include "tile.hpp"
#include "cascade.hpp"
#include "filter.hpp"
#include "fit.hpp"
#include "smoother.hpp"

namespace LEVEL {

template <class Out, class In>
void run_typed(Run& run, Int begin, Int end) {
    const Job& job = run.job;
    !job.band     ? (job.adjoint ? cascade_adjoint<Out, In> : cascade<Out, In>)(run, begin, end)
    : job.table   ? (job.adjoint ? filter_adjoint<Out, Even> : filter_rows<Out, Even>)(run, begin, end)
    : job.degree  ? (job.adjoint ? filter_adjoint<Out, Fitted> : filter_rows<Out, Fitted>)(run, begin, end)
                  : (job.adjoint ? filter_adjoint<Out, Uneven> : filter_rows<Out, Uneven>)(run, begin, end);
}

void run_part(Run& run, Int k, Int count) {
    const Job& job = run.job;
    if (job.smoother) return smoother_part(run, k, count);
    const Int items = Tiling(job).items(job), begin = items * k / count;
    const Int end = items * (k + 1) / count;
    bool floats = !job.recorded;  // the first rows of a recording are summed in double
    for (const Array* array : {&job.actions, &job.upstream[0], &job.upstream[1], &job.upstream[2],
                               &job.upstream[3]})
        floats &= !array->data || is_plain<float>(*array);
    job.type ? run_typed<double, double>(run, begin, end)
    : floats ? run_typed<float, float>(run, begin, end)
             : run_typed<float, double>(run, begin, end);
}

}  // namespace LEVEL
