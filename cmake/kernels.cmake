# The kernels' sources (src/kernels/*.cuh) inside the executable: a generated assembler file takes each in by .incbin and
# lists name, start and end in one table, which src/backend/cuda/sources.cc reads. No list to keep: the glob is the list.
file(GLOB kernel_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/*.cuh)
list(SORT kernel_files)
set(kernel_data "")
set(kernel_table "")
set(kernel_index 0)
foreach(kernel_file IN LISTS kernel_files)
  get_filename_component(kernel_name ${kernel_file} NAME)
  string(APPEND kernel_data
         ".Lkernel_begin${kernel_index}:\n  .incbin \"${kernel_file}\"\n.Lkernel_end${kernel_index}:\n  .byte 0\n"
         ".Lkernel_name${kernel_index}:\n  .asciz \"kernels/${kernel_name}\"\n")
  string(APPEND kernel_table
         "  .8byte .Lkernel_name${kernel_index}, .Lkernel_begin${kernel_index}, .Lkernel_end${kernel_index}\n")
  math(EXPR kernel_index "${kernel_index} + 1")
endforeach()
set(kernel_source ${CMAKE_BINARY_DIR}/generated/kernel_sources.S)
set(kernel_text "/* Made by cmake/kernels.cmake; not to be edited. */
  .section .rodata.spk_kernels, \"a\", %progbits
${kernel_data}
  .section .data.rel.ro.spk_kernels, \"aw\", %progbits
  .balign 8
  .globl spk_kernel_sources_table
  .type spk_kernel_sources_table, %object
spk_kernel_sources_table:
${kernel_table}  .8byte 0, 0, 0
  .size spk_kernel_sources_table, . - spk_kernel_sources_table
  .section .note.GNU-stack, \"\", %progbits
")
file(CONFIGURE OUTPUT ${kernel_source} CONTENT "${kernel_text}" @ONLY)
set_source_files_properties(${kernel_source} PROPERTIES OBJECT_DEPENDS "${kernel_files}")
target_sources(spk_backend_cuda PRIVATE ${kernel_source})
