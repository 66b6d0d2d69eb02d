// The function of FastPGM that its adapter calls by ctypes. This file is compiled with the program's sources (build.py)
// and uses the declarations of their headers.

#include <algorithm>
#include <cstdint>

#include "fastpgm/structure_learning/PCStable.h"

// Searches the skeleton of the data `codes` (p, n), and returns the seconds of the search by the program's own clock.
// Writes 1 to edges (p, p) for each pair i < j that is left. Lets *sets point to *length numbers, which are valid until
// the next call: i, j, the size of the set and its members, for each removed pair.
extern "C" double fastpgm_skeleton(const int32_t* codes, const int32_t* categories, int p, int n, double alpha,
                                   int deepest, int threads, int32_t* edges, const int32_t** sets, size_t* length) {
    static std::vector<int32_t> found;
    Dataset data;
    data.num_instance = n;
    data.num_vars = p;
    data.vars_possible_values_ids.resize(p);
    data.num_of_possible_values_of_disc_vars.assign(categories, categories + p);
    data.dataset_columns = new int*[p];  // The data set deletes its columns.
    for (int i = 0; i < p; ++i) data.dataset_columns[i] = std::copy_n(codes + size_t(i) * n, n, new int[n]) - n;

    PCStable search(new Network(true), alpha, deepest + 1);
    Timer timer;
    search.AssignNodeInformation(&data);
    search.StructLearnByPCStable(&data, threads, 1, false, &timer, 0);

    // The program may have oriented edges, which changes no pair. The members are of the set that removed the pair.
    for (Edge& edge : search.network->vec_edges) {
        const auto ends = std::minmax({edge.GetNode1()->GetNodeIndex(), edge.GetNode2()->GetNodeIndex()});
        edges[size_t(ends.first) * p + ends.second] = 1;
    }
    found.clear();
    for (const auto& removed : search.sepset) {
        const auto& members = removed.second;
        found.insert(found.end(), {removed.first.first, removed.first.second, int32_t(members.size())});
        found.insert(found.end(), members.begin(), members.end());
    }
    *sets = found.data();
    *length = found.size();
    return timer.time["pc-stable step 0"] + timer.time["pc-stable step 1"];
}
