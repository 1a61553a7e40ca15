#!/bin/sh
# A shard for each GPU of this machine, then the merge: sh torchrun.sh [SOURCE [OUT.h5]]
set -e
in=${1:-sample_data/reach.h5} out=${2:-out.h5}
torchrun --standalone --no-python --nproc-per-node "${GPUS:-auto}" \
    trajcli integrate "$in" --mode jerk --scheme zoh -o "$out" --shard auto
trajcli merge "$out"
