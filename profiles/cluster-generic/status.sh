#!/bin/sh
# Prints the state of a Slurm job in the words that Snakemake knows; if the controller does not answer, the job counts as running.
state=$(squeue --noheader --states=all --format=%T --jobs="$1" 2>&1) || case $state in
    *'Invalid job id'*) state=$(sacct --noheader --parsable2 --allocations --format=State --jobs="$1") ;;
    *) state=RUNNING ;;
esac
case $state in
    COMPLETED) echo success ;;
    BOOT_FAIL | CANCELLED* | DEADLINE | FAILED | NODE_FAIL | OUT_OF_MEMORY | TIMEOUT | '') echo failed ;;
    *) echo running ;;
esac
