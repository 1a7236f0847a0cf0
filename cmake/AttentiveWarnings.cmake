# Warnings for this project's targets.

option(ATTENTIVE_WERROR "Treat warnings as errors" OFF)

function(attentive_warnings target)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
    -Wno-unknown-pragmas  # torch's headers contain MSVC pragmas
    $<$<BOOL:${ATTENTIVE_WERROR}>:-Werror>)
endfunction()
