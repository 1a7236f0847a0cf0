# ATTENTIVE_BUILD_TOKENIZERS, ATTENTIVE_BUILD_VIZ, ATTENTIVE_BUILD_DISTRIBUTED: whether to build the components
# attentive::tokenizers and attentive::viz, which need libraries of their own, and attentive::distributed, which needs a part of
# LibTorch that not every one has. attentive_optional_component sets ATTENTIVE_TOKENIZERS, ATTENTIVE_VIZ and ATTENTIVE_DISTRIBUTED.

include("${CMAKE_CURRENT_LIST_DIR}/AttentiveSwitch.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/attentive_component_libraries.cmake")

# What is missing without a component, and its libraries.
set(_attentive_tokenizers "tokenizers of Python's models" "PCRE2 and utf8proc")
set(_attentive_viz "pictures of attention" "zlib")
set(_attentive_distributed "training in several processes" "a LibTorch from 2.11 on with c10d and Gloo")

# attentive_optional_component(<name>)
function(attentive_optional_component name)
  list(GET _attentive_${name} 0 what)
  list(GET _attentive_${name} 1 libraries)
  string(TOUPPER "${name}" upper)
  set(option ATTENTIVE_BUILD_${upper})
  set(${option} "AUTO" CACHE STRING "The component ${name}: AUTO (if there is ${libraries}), ON, OFF")
  set_property(CACHE ${option} PROPERTY STRINGS AUTO ON OFF)

  attentive_switch_wanted(${option} "${what}" built)
  if(built)
    attentive_component_libraries(${name} lack)
    attentive_switch_settle(${option} "${what}" "${lack}" built)
  endif()
  set(ATTENTIVE_${upper} ${built} PARENT_SCOPE)
endfunction()
