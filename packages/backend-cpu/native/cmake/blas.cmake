# Finds BLAS and LAPACK: Accelerate on macOS, OpenBLAS elsewhere, which has both.
if(APPLE)
  set(LAZULI_BLAS_DEFINITIONS LAZULI_ACCELERATE ACCELERATE_NEW_LAPACK)
  set(LAZULI_BLAS_LIBRARIES "-framework Accelerate")
  return()
endif()

find_path(LAZULI_BLAS_INCLUDE cblas.h PATH_SUFFIXES openblas openblas-pthread
  "${CMAKE_LIBRARY_ARCHITECTURE}/openblas-pthread" REQUIRED)
set(LAZULI_BLAS_DEFINITIONS LAZULI_OPENBLAS)
find_library(LAZULI_OPENBLAS_STATIC libopenblas.a PATH_SUFFIXES openblas-pthread)
if(NOT LAZULI_OPENBLAS_STATIC OR NOT LAZULI_STATIC_BLAS)
  find_library(LAZULI_OPENBLAS openblas PATH_SUFFIXES openblas-pthread REQUIRED)
  set(LAZULI_BLAS_LIBRARIES ${LAZULI_OPENBLAS})
  return()
endif()

# A table of kernels for each processor that OpenBLAS knows makes 30 MB. Those of one instruction set share a table: what runs here has SSE4.2 at least,
# and SKYLAKEX differs from its successors in products of bfloat16, which are not OpenBLAS's here, as HASWELL does from ZEN in nothing.
set(instead_of_NEHALEM PRESCOTT CORE2 PENRYN DUNNINGTON ATOM NANO OPTERON OPTERON_SSE3 BARCELONA BOBCAT ATHLON BANIAS COPPERMINE KATMAI NORTHWOOD)
set(instead_of_SANDYBRIDGE BULLDOZER PILEDRIVER STEAMROLLER)
set(instead_of_HASWELL EXCAVATOR ZEN)
set(instead_of_SKYLAKEX COOPERLAKE SAPPHIRERAPIDS)
execute_process(COMMAND ${CMAKE_AR} t "${LAZULI_OPENBLAS_STATIC}" OUTPUT_VARIABLE members)
foreach(kept IN ITEMS NEHALEM SANDYBRIDGE HASWELL SKYLAKEX)
  if(members MATCHES "setparam_${kept}[.]o")
    foreach(core IN LISTS instead_of_${kept})
      list(APPEND LAZULI_BLAS_LIBRARIES "-Wl,--defsym=gotoblas_${core}=gotoblas_${kept}")
    endforeach()
  endif()
endforeach()
# After the names that it need not define.
list(APPEND LAZULI_BLAS_LIBRARIES ${LAZULI_OPENBLAS_STATIC})
