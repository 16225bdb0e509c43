# spk_embedded: the files of the checkpoint folder SPARKLING_EMBED inside the executable.
#
# A generated assembler file takes each file in by .incbin (a C array of 20 MiB costs minutes of compile time and
# gigabytes of memory) and lists name, start and end in one table, which src/cli/embedded.cc reads. Each file starts on a
# page, as a mapped file does. Assembled again when a file of the folder changes.
set(embed_files "")
if(SPARKLING_EMBED AND IS_DIRECTORY ${SPARKLING_EMBED})
  file(GLOB embed_files CONFIGURE_DEPENDS
       ${SPARKLING_EMBED}/config.json ${SPARKLING_EMBED}/generation_config.json
       ${SPARKLING_EMBED}/tokenizer.json ${SPARKLING_EMBED}/tokenizer_config.json
       ${SPARKLING_EMBED}/chat_template.jinja ${SPARKLING_EMBED}/token_counts.txt
       ${SPARKLING_EMBED}/*.safetensors ${SPARKLING_EMBED}/model.safetensors.index.json)
  list(SORT embed_files)
endif()

set(embed_data "")
set(embed_table "")
set(embed_index 0)
foreach(embed_file IN LISTS embed_files)
  get_filename_component(embed_name ${embed_file} NAME)
  string(APPEND embed_data
         "  .balign 4096\n.Lbegin${embed_index}:\n  .incbin \"${embed_file}\"\n.Lend${embed_index}:\n  .byte 0\n"
         ".Lname${embed_index}:\n  .asciz \"${embed_name}\"\n")
  string(APPEND embed_table
         "  .8byte .Lname${embed_index}, .Lbegin${embed_index}, .Lend${embed_index}\n")
  math(EXPR embed_index "${embed_index} + 1")
endforeach()

set(embed_source ${CMAKE_BINARY_DIR}/generated/embedded_model.S)
set(embed_text "/* Made by cmake/embed.cmake; not to be edited. */
  .section .rodata.spk_embedded, \"a\", %progbits
${embed_data}
  .section .data.rel.ro.spk_embedded, \"aw\", %progbits
  .balign 8
  .globl spk_embedded_table
  .type spk_embedded_table, %object
spk_embedded_table:
${embed_table}  .8byte 0, 0, 0
  .size spk_embedded_table, . - spk_embedded_table
  .section .note.GNU-stack, \"\", %progbits
")
file(CONFIGURE OUTPUT ${embed_source} CONTENT "${embed_text}" @ONLY)
set_source_files_properties(${embed_source} PROPERTIES OBJECT_DEPENDS "${embed_files}")
add_library(spk_embedded STATIC ${embed_source})
