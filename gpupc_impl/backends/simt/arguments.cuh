// Type traits that the assertions of backends/sources.py apply to kernels and the structs that they take by value.
#pragma once

// The offset of a field of a struct, in bytes.
#ifdef GPUPC_HOST
#define GPUPC_OFFSET(field, ...) __builtin_offsetof(__VA_ARGS__, field)
#else
// NVRTC does not provide offsetof.
#define GPUPC_OFFSET(field, ...) __INTADDR__(&static_cast<__VA_ARGS__*>(nullptr)->field)
#endif

namespace gpupc {

template <class A, class B>
constexpr bool same = false;
template <class A>
constexpr bool same<A, A> = true;

// A type without const; for a pointer also without the const of its target.
template <class T>
struct Plain {
    using Type = T;
};
template <class T>
struct Plain<const T> : Plain<T> {};
template <class T>
struct Plain<T*> {
    using Type = typename Plain<T>::Type*;
};

template <class Field, class Declared>
constexpr bool is_field = same<typename Plain<Field>::Type, Declared>;

template <class... S>
struct Structs {};

// The structs among the types P, appended to the list Found.
template <class Found, class... P>
struct StructsAmong {
    using Type = Found;
};
template <class... S, class First, class... P>
struct StructsAmong<Structs<S...>, First, P...> {
    template <bool IS_STRUCT, class...>
    struct Next : StructsAmong<Structs<S...>, P...> {};
    template <class... Nothing>
    struct Next<true, Nothing...> : StructsAmong<Structs<S..., First>, P...> {};
    using Type = typename Next<__is_class(First)>::Type;
};

template <class Kernel, class... S>
constexpr bool takes_structs = false;
template <class... P, class... S>
constexpr bool takes_structs<void (*)(P...), S...> = same<typename StructsAmong<Structs<>, P...>::Type, Structs<S...>>;

}  // namespace gpupc
