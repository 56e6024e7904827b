/* The stand-in for <metal_stdlib> when Metal source is compiled for the CPU. No standard header is
 * included. */
#pragma once

#include "../include/lazuli/metal_host.h"

#include "scalar.h"

#include "vector.h"

#include "math.h"

#include "atomic.h"

#include "combine.h"

#include "simdgroup.h"

#include "matrices.h"

#include "entry.h"

#define METAL_FUNC inline
#define METAL_CONST const
#define __METAL__ 1
#define __METAL_VERSION__ 320
#define __HAVE_BFLOAT__ 1

/* Instantiated here, so that a kernel finds them compiled. */
template struct lz::Elements<float, 2>;
template struct lz::Elements<float, 3>;
template struct lz::Elements<float, 4>;
template struct lz::Elements<half, 4>;
template struct lz::Elements<uint, 2>;
template struct lz::Elements<uint, 3>;
template struct lz::Elements<ushort, 2>;
template struct lz::Elements<ushort, 3>;
