# attentive_embed(<target> <namespace> <name> <file>…): concatenates the texts of the files to the string
# <namespace>::<name> of the target, so that an installed program needs no additional files.

set(ATTENTIVE_EMBED_SCRIPT "${CMAKE_CURRENT_LIST_DIR}/embed_text.cmake")

function(attentive_embed target namespace name)
  list(TRANSFORM ARGN PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/" OUTPUT_VARIABLE inputs)
  list(JOIN inputs "|" joined)
  set(output "${CMAKE_CURRENT_BINARY_DIR}/embedded_${name}.cpp")
  add_custom_command(OUTPUT "${output}"
    COMMAND ${CMAKE_COMMAND} "-DINPUTS=${joined}" "-DOUTPUT=${output}" "-DNAMESPACE=${namespace}" "-DNAME=${name}"
            -P "${ATTENTIVE_EMBED_SCRIPT}"
    DEPENDS ${inputs} "${ATTENTIVE_EMBED_SCRIPT}"
    COMMENT "Embedding ${ARGN}"
    VERBATIM)
  target_sources(${target} PRIVATE "${output}")
  set_source_files_properties("${output}" PROPERTIES SKIP_PRECOMPILE_HEADERS ON
    COMPILE_OPTIONS -Wno-overlength-strings)  # 90 kB in one literal
endfunction()
