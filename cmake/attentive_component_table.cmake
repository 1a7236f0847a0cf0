# The components of the package, each before those that use it, with the components that each links. The same
# table serves the build, the installed package's config file, and the pages (tools/checks/check_components.py).

include_guard(GLOBAL)

set(attentive_components attention files models text tokenizers train viz distributed parity accelerate operators)
set(attentive_attention_needs "")
set(attentive_files_needs attention)
set(attentive_models_needs files)
set(attentive_text_needs "")
set(attentive_tokenizers_needs text)
set(attentive_train_needs models text)
set(attentive_viz_needs attention)
set(attentive_distributed_needs train)
set(attentive_parity_needs models)
set(attentive_accelerate_needs attention)
set(attentive_operators_needs accelerate)
# Components that link attentive_base, which is not a component: those that read files or write text.
set(attentive_over_base files text viz)
# The components that attentive::attentive links.
set(attentive_usual_components attention files models text)

# attentive_with_needs(<out> <name>…): these components and all that they need, in the table's order.
function(attentive_with_needs out)
  set(wanted ${ARGN})
  set(open ${ARGN})
  while(open)
    list(POP_FRONT open name)
    list(APPEND wanted ${attentive_${name}_needs})
    list(APPEND open ${attentive_${name}_needs})
  endwhile()
  set(sorted "")
  foreach(name IN LISTS attentive_components)
    if(name IN_LIST wanted)
      list(APPEND sorted ${name})
    endif()
  endforeach()
  set(${out} "${sorted}" PARENT_SCOPE)
endfunction()
