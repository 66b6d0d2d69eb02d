#!/bin/sh
# What became of a Slurm job, in the words that Snakemake knows; a controller that does not answer is asked again later.
found=$(squeue --noheader --states=all --format=%T --jobs="$1" 2>&1) || case $found in
    *'Invalid job id'*) found=$(sacct --noheader --parsable2 --allocations --format=State --jobs="$1") ;;
    *) found=RUNNING ;;
esac
case $found in
    COMPLETED) echo success ;;
    BOOT_FAIL | CANCELLED* | DEADLINE | FAILED | NODE_FAIL | OUT_OF_MEMORY | TIMEOUT | '') echo failed ;;
    *) echo running ;;
esac
