# Sanitizers for this project's targets: -DATTENTIVE_SANITIZE=address,undefined.

set(ATTENTIVE_SANITIZE "" CACHE STRING "Sanitizers for our own targets, for example address,undefined")

function(attentive_sanitizers target)
  if(ATTENTIVE_SANITIZE)
    target_compile_options(${target} PRIVATE
      -fsanitize=${ATTENTIVE_SANITIZE} -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=${ATTENTIVE_SANITIZE})
  endif()
endfunction()
