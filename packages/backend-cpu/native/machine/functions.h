// The functions of simd/math.h as instructions.
#ifndef LAZULI_MACHINE_FUNCTIONS_H
#define LAZULI_MACHINE_FUNCTIONS_H

#include "machine/sequence.h"
#include "simd/micro.h"

namespace lazuli::machine {

// Appends a float32 function of one argument for vectors of so many lanes; -1 when there is none.
int append_function(Sequence& sequence, Op op, int argument, int lanes);

}  // namespace lazuli::machine

#endif
