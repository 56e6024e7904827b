# -DLAZULI_SANITIZE=address|undefined|thread: checks at run time, with what they need to name lines. See tooling/sanitize.mjs.
# The loops of simd/ are built with it where -DLAZULI_SANITIZE_SIMD=ON asks for that: all instruction sets take long. native/tests has them.
set(LAZULI_SANITIZE "" CACHE STRING "address, undefined or thread: build with that sanitizer")
option(LAZULI_SANITIZE_SIMD "build simd/ with the sanitizer, too" OFF)
set(LAZULI_SANITIZE_FLAGS)
if(LAZULI_SANITIZE)
  if(NOT LAZULI_SANITIZE MATCHES "^(address|undefined|thread)$")
    message(FATAL_ERROR "LAZULI_SANITIZE is address, undefined or thread, not '${LAZULI_SANITIZE}'")
  endif()
  set(LAZULI_SANITIZE_FLAGS -O1 -g1 -fsanitize=${LAZULI_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${LAZULI_SANITIZE})
endif()
