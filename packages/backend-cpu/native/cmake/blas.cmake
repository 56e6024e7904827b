# Finds BLAS and LAPACK: Accelerate on macOS, OpenBLAS elsewhere, which has both.
if(APPLE)
  set(LAZULI_BLAS_DEFINITIONS LAZULI_ACCELERATE ACCELERATE_NEW_LAPACK)
  set(LAZULI_BLAS_LIBRARIES "-framework Accelerate")
  return()
endif()

find_path(LAZULI_BLAS_INCLUDE cblas.h PATH_SUFFIXES openblas openblas-pthread
  "${CMAKE_LIBRARY_ARCHITECTURE}/openblas-pthread" REQUIRED)
set(LAZULI_BLAS_DEFINITIONS LAZULI_OPENBLAS)
if(LAZULI_STATIC_BLAS)
  find_library(LAZULI_OPENBLAS libopenblas.a PATH_SUFFIXES openblas-pthread REQUIRED)
else()
  find_library(LAZULI_OPENBLAS openblas PATH_SUFFIXES openblas-pthread REQUIRED)
endif()
set(LAZULI_BLAS_LIBRARIES ${LAZULI_OPENBLAS})
