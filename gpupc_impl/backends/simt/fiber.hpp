// Fibers: the threads of a block, among whose stacks one OS thread switches. No switch makes a system call, unlike
// swapcontext. On x86-64 a switch calls a few lines of assembly whose return the processor predicts. On other
// processors it uses _setjmp/_longjmp, which are a third as fast, and makecontext starts a fiber.
#pragma once

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <ucontext.h>

#include <algorithm>

#include "backends/simt/state.hpp"

#if defined(GPUPC_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#elif defined(GPUPC_TSAN)
// Only kernels are instrumented for the thread sanitizer; the runtime reports the order of their accesses to it.
#include <sanitizer/tsan_interface.h>
#endif

#if defined(__x86_64__) && !defined(GPUPC_SETJMP)
#define SIMT_ASM_SWITCH 1
/// Saves the registers and the stack pointer of the running fiber, and restores those of another one.
extern "C" void simt_switch(void** save_stack_pointer, void* stack_pointer);
asm(R"(
    .pushsection .text
    .type simt_switch, @function
    .hidden simt_switch
    .globl simt_switch
simt_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size simt_switch, . - simt_switch
    .popsection
)");
#elif defined(GPUPC_TSAN)
#error "the thread sanitizer tracks setjmp in a way that fibers confuse; replay launches on an x86-64 machine"
#endif

namespace simt {
namespace {

struct Fiber {
    Fiber* next = nullptr;  // the next fiber in the list that holds this one; a fiber is in one list at most
#if SIMT_ASM_SWITCH
    void* stack_pointer = nullptr;
#else
    jmp_buf registers;
    bool started = true;  // false only between prepare() and the first switch to this fiber
#endif
    char* stack = nullptr;
    size_t stack_bytes = 0;

    // The waiting thread: its index, where it waits, and the operands and the result of a warp operation.
    uint3 thread;
    unsigned linear;
    Wait wait = kNowhere;
    unsigned mask, source;
    unsigned long long value, result;

#if defined(GPUPC_ASAN)
    void* fake_stack = nullptr;
#elif defined(GPUPC_TSAN)
    void* shadow = nullptr;  // the sanitizer's thread that stands for this CUDA thread
#endif
};

/// A queue of fibers, first in, first out.
struct FiberQueue {
    Fiber* head = nullptr;
    Fiber* tail = nullptr;

    void push(Fiber* fiber) {
        fiber->next = nullptr;
        (head ? tail->next : head) = fiber;
        tail = fiber;
    }
    Fiber* pop() {
        Fiber* fiber = head;
        if (fiber) head = fiber->next;
        return fiber;
    }
    void take_all(FiberQueue& other) {
        if (!other.head) return;
        (head ? tail->next : head) = other.head;
        tail = other.tail;
        other.head = nullptr;
    }
};

/// The function that a fiber executes, from the first switch to it.
[[noreturn]] void fiber_main();

#if SIMT_ASM_SWITCH

/// Prepares an empty stack, so that the next switch to the fiber enters fiber_main.
void prepare(Fiber* fiber) {
    constexpr size_t kSaved = 6;  // the registers that simt_switch saves
    auto top = reinterpret_cast<uintptr_t>(fiber->stack + fiber->stack_bytes) & ~uintptr_t{15};
    // The stack pointer is 8 bytes off a multiple of 16, as after a call.
    auto* place = reinterpret_cast<void**>(top) - 2;
    *place = reinterpret_cast<void*>(fiber_main);
    fiber->stack_pointer = std::fill_n(place - kSaved, kSaved, nullptr) - kSaved;
}

/// Leaves one fiber for another; returns when another fiber switches back.
void switch_fiber(Fiber* from, Fiber* to) { simt_switch(&from->stack_pointer, to->stack_pointer); }

#else

void prepare(Fiber* fiber) { fiber->started = false; }

void switch_fiber(Fiber* from, Fiber* to) {
    if (_setjmp(from->registers) != 0) return;
    if (to->started) _longjmp(to->registers, 1);
    to->started = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = to->stack;
    context.uc_stack.ss_size = to->stack_bytes;
    context.uc_link = nullptr;
    makecontext(&context, fiber_main, 0);
    setcontext(&context);
}

#endif

}  // namespace
}  // namespace simt
