// The functions of a level. Included by each level*.cpp, last.

namespace LEVEL {

template <class Kernel>
void run_kernel(Run& run, Int begin, Int end) {
    Kernel kernel(run, end - begin);
    kernel.each_group(begin, end, Kernel::BACKWARDS, kernel);
}

template <class Out>
void run_typed(Run& run, Int begin, Int end) {
    const Job& job = run.job;
    if (job.adjoint)
        job.band ? run_kernel<BandAdjoint<Out>>(run, begin, end)
                 : run_kernel<CascadeAdjoint<Out>>(run, begin, end);
    else
        job.band ? run_kernel<Band<Out>>(run, begin, end)
                 : run_kernel<Cascade<Out>>(run, begin, end);
}

Int items(const Job& job) { return Split(job).items(); }

void run_items(Run& run, Int begin, Int end) {
    run.job.type ? run_typed<double>(run, begin, end) : run_typed<float>(run, begin, end);
}

extern const Engine engine;
const Engine engine = {items, run_items};

}  // namespace LEVEL
