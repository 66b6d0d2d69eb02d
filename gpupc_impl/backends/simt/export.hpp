// Makes one kernel callable from Python: exports its parameter types as text, and a loop that runs its threads.
#pragma once

#include <type_traits>
#include <utility>

#include "backends/simt/state.hpp"

namespace simt {

struct Code {
    char text[4];
};

template <class T>
constexpr char kind_of() {
    if (std::is_same_v<T, bool>) return 'b';
    if (std::is_floating_point_v<T>) return 'f';
    if (std::is_integral_v<T>) return std::is_signed_v<T> ? 'i' : 'u';
    return 'V';  // V: a pointer to void or to a struct
}

template <class T>
constexpr char size_of() {
    if constexpr (std::is_arithmetic_v<T>)
        return static_cast<char>('0' + sizeof(T));
    else
        return '\0';
}

/// The NumPy name of a parameter's type ("i4"), preceded by a star for a pointer ("*f8"); "S" for a struct.
template <class P>
constexpr Code code_of() {
    if constexpr (std::is_pointer_v<P>) {
        using T = std::remove_cv_t<std::remove_pointer_t<P>>;
        return {{'*', kind_of<T>(), size_of<T>(), '\0'}};
    } else {
        static_assert(std::is_arithmetic_v<P> || std::is_trivially_copyable_v<P>, "a struct is passed as its bytes");
        return {{std::is_class_v<P> ? 'S' : kind_of<P>(), size_of<P>(), '\0', '\0'}};
    }
}

/// Ends the current thread and makes the next thread of the block the current one; returns false if there is none.
inline bool next_thread() {
#ifndef GPUPC_TSAN  // Under the thread sanitizer the runtime starts every CUDA thread as a thread of the sanitizer.
    ThreadState& s = simt_state;
    if (!s.tracked && s.next < s.count) {
        s.linear = s.next++;
        advance(s.thread, s.block_dim);
        return true;
    }
#endif
    return simt_thread_done();
}

template <auto kernel>
struct Export;

template <class... P, void (*kernel)(P...)>
struct Export<kernel> {
    static constexpr Code codes[] = {code_of<P>()..., Code{}};

    template <size_t... I>
    static void call([[maybe_unused]] void** args, std::index_sequence<I...>) {
        kernel(*static_cast<P*>(args[I])...);
    }

    static void run(void** args) {
        do {
            call(args, std::index_sequence_for<P...>{});
        } while (next_thread());
    }
};

}  // namespace simt

#define SIMT_EXPORT(...)                                                  \
    namespace {                                                           \
    constexpr auto simt_chosen = &__VA_ARGS__;                            \
    using SimtExport = simt::Export<simt_chosen>;                         \
    }                                                                     \
    extern "C" SIMT_API const simt::ExportedKernel simt_kernel;           \
    const simt::ExportedKernel simt_kernel = {&SimtExport::codes[0].text, \
                                              sizeof(SimtExport::codes) / sizeof(simt::Code) - 1, SimtExport::run};
