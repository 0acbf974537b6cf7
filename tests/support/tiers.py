"""Which tests are quick, and which are `slow`.

Plain `pytest` runs the quick ones: every backend from end to end in a few minutes, with what pip and g++ provide.
`pytest -m slow` runs the others, `pytest -m ""` all of them; `.ci/run` runs all. A test is quick unless it is listed
here: because it takes long and much of what it proves a quick test proves as well, or because it needs a program that
only a system's package brings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePath

import pytest

ALL = "every test of the file"

#: One preset of each kind, and of each main loop; tests of every preset are quick for these.
ONE_OF_EACH = frozenset(
    """
    naive L3_SIMD_8x4_1x8 block_read_16x2_1x8 L3_SLM_8x8_4x16 smem_8x8_double smem_8x8_double_packed
    sg16_block_16x1_split4 reduction_4x4_4x4 cpu_4x4_along_k cpu_6x64_prefetched async_8x4_8x16
    mbarrier_8x8_4x8_slices8 mbarrier_8x16_16x16_stream mma_4x8_16x8 dpas_32x2_1x8
    wgmma_64x64_s8 wgmma_128x256_s4_turns wgmma_16x64_s8_joined2
    """.split()
)

#: File -> its tests that go through presets.
OF_EVERY_PRESET: dict[str, tuple[str, ...]] = {
    "unit/test_free_constants.py": ("test_what_no_guard_refuses_leaves_the_text_as_it_is",),
    "device/test_presets.py": ("test_any_size",),
    "device/test_sycl_presets.py": ("test_any_size",),
    "interp/test_generated.py": ("test_no_false_alarm",),
    "interp/test_nothing_to_add.py": ("test_every_preset_without_depth",),
    "interp/test_numerics.py": ("test_order_of_summation",),
    "interp/test_presets.py": (
        "test_any_size",
        "test_each_ring_goes_around_twice",
        "test_few_and_many_steps",
        "test_folded_sizes_and_factors",
        "test_integers_bit_for_bit",
        "test_layouts",
        "test_assumed_multiples",
        "test_several_rounds_of_the_ring",
    ),
    "interp/test_twins.py": ("test_aligned_sizes",),
    "interp/test_warpgroups.py": ("test_presets",),
}

#: Programs that only a system's package brings.
OF_OTHERS_TOOLS: dict[str, tuple[str, ...]] = {
    "device/test_blas.py": ("test_the_reference_blas_own_test",),
    "device/test_complex.py": ("test_clang_takes_them_without_warnings",),
    "device/test_examples.py": (ALL,),
    "device/test_gemm.py": ("test_torch_on_the_cpu",),
    "device/test_hip.py": (ALL,),
    "device/test_invariant.py": ("test_torch",),
    "device/test_oclgrind.py": (ALL,),
    "device/test_short_programs.py": (
        "test_opencl_builds_by_cmake_and_runs",
        "test_torch",
    ),
    "device/test_torch.py": (ALL,),
    "device/test_torch_grouped.py": (ALL,),
    "device/test_torch_samples.py": (ALL,),
    "device/test_sycl_runtime.py": ("test_dpctl_arrays",),
    "device/test_types.py": (
        "test_clang_takes_2d_block_messages_without_warnings",
        "test_clang_takes_them_without_warnings",
    ),
    "golden/test_clang_format.py": ("test_files_that_are_kept", "test_projects", "test_requests_drawn_at_random"),
    "golden/test_documents.py": ("test_clang_takes_it",),
    "golden/test_drawn.py": (ALL,),
    "golden/test_hip.py": ("test_presets_compile", "test_the_header_of_rocm", "test_types_compile"),
    "golden/test_icpx.py": (ALL,),
    "golden/test_sycl_matrices.py": (ALL,),
    "golden/test_inspect.py": (
        "test_a_built_in_that_the_device_lacks",
        "test_a_compiler_error_is_told_with_its_line",
        "test_a_kernel_without_a_loop",
        "test_a_loop_counted_by_hand",
        "test_a_loop_that_waits_for_scratch_memory_is_given_no_bound_of_1",
        "test_a_loop_without_a_multiply_add",
        "test_a_sycl_header",
        "test_a_user_s_file",
        "test_an_empty_file",
        "test_every_preset_that_is_named_is_inspected",
        "test_everything_it_writes",
        "test_local_memory_on_gfx906",
        "test_local_memory_that_the_launch_decides_on_is_unknown",
        "test_no_kernel",
        "test_occupancy_is_what_clang_says",
        "test_several_kernels",
        "test_the_page_in_a_browser",
        "test_two_equal_loops_are_told_of",
    ),
    "device/test_dp4a.py": ("test_hip", "test_intels_gpus_have_the_instruction"),
    "golden/test_ocloc.py": (ALL,),
    "golden/test_presets.py": ("test_compiles_without_warnings",),
    "golden/test_static.py": ("test_no_worse",),
    "golden/test_projects.py": (
        "test_a_wrong_kernel_is_told",
        "test_all_headers_in_one_translation_unit",
        "test_cmake_builds_and_tests_it",
        "test_hip_project",
        "test_program_is_right",
        "test_what_a_launcher_refuses",
        "test_wrong_arguments",
    ),
    "golden/test_sycl.py": ("test_host_side_of_headers_and_a_caller",),
    "golden/test_sycl_ocloc.py": (ALL,),
    "golden/test_together.py": (
        "test_all_opencl_files_in_one_translation_unit",
        "test_types_of_opencl_files_in_one_translation_unit",
    ),
    "unit/test_bench.py": ("test_a_library_in_a_process_of_its_own",),
    "unit/test_docs.py": ("test_the_readmes_cpp_runs_as_printed",),
    "unit/test_export.py": ("test_compiles_without_warnings",),
    "unit/test_nothing_to_add.py": ("test_compilers_take_it_without_warnings",),
    "unit/test_ptxas.py": ("test_nvrtc",),
    "unit/test_site.py": (
        "test_every_page_opens_in_a_browser",
        "test_faults_of_a_page_are_seen",
        "test_nothing_is_loaded_from_other_hosts",
        "test_what_the_build_writes",
    ),
}

#: What takes long; `*` stands for anything.
LONG: dict[str, tuple[str, ...]] = {
    "device/test_dask.py": ("test_a_lost_worker_loses_nothing",),
    "device/test_invariant.py": ("test_two_hundred_numbers_of_rows",),
    "device/test_grouped.py": (
        "test_arrays_on_the_device",
        "test_epilogues",
        "test_grouped",
        "test_opencl",
        "test_sycl",
    ),
    "interp/test_grouped.py": (
        "test_each_group_has_operands_of_its_own[cpu_*",
        "test_groups[*cpu_*",
        "test_groups[*gemv*",
        "test_groups[*smem*",
        "test_matrix_instructions",
        "test_orders_where_vectors_begin_anywhere",
        "test_other_groups[async_*",
        "test_warpgroups",
    ),
    "device/test_batches.py": (
        "test_opencl",
        "test_sycl",
    ),
    "device/test_blas.py": (
        "test_calls_with_copies",
        "test_every_kind_of_call_with_complex_numbers",
        "test_kernels_are_built_once",
        "test_matrices_are_turned_for_kernels_that_take_them_one_way",
        "test_matrices_that_reach_too_far_are_multiplied_in_parts",
    ),
    "device/test_complex.py": (
        "test_sycl",
        "test_sycl_headers_are_taken_without_warnings",
    ),
    "device/test_cpu_code.py": (ALL,),
    "device/test_epilogues.py": (
        "test_sycl",
        "test_vectors",
    ),
    "device/test_free_constants.py": (ALL,),
    "device/test_numerics.py": ("test_schedules_without_parts_of_k_give_the_same_bits",),
    "device/test_presets.py": (
        "test_layouts",
        "test_parts_of_k",
    ),
    "device/test_prologues.py": ("test_sycl",),
    "device/test_runtime_calls.py": ("test_numpy",),
    "device/test_runtime_delivery.py": (
        "test_compile_a_preset",
        "test_module_of_its_own",
    ),
    "device/test_short_programs.py": (
        "test_cuda_compiles",
        "test_notebook",
        "test_python",
        "test_types_of_sycl",
    ),
    "device/test_cpu_panels.py": (
        "test_the_same_bits_on_any_number_of_threads",
        "test_what_is_chosen_is_right",
    ),
    "device/test_sycl_presets.py": (
        "test_any_size[L3_*]",
        "test_any_size[reduction_*]",
        "test_any_size[smem_8x8_double-*]",
        "test_from_usm_and_by_copies",
        "test_layouts",
        "test_transpose",
    ),
    "device/test_sycl_programs.py": (
        "test_program",
        "test_transpose",
    ),
    "device/test_sycl_runtime.py": ("test_a_workspace_that_is_too_large",),
    "device/test_tuning.py": (
        "test_a_cpu_is_calibrated",
        "test_a_lost_worker_costs_nothing",
        "test_a_trace_has_what_a_script_asks_for",
        "test_tune_and_what_follows",
    ),
    "unit/test_tuning_workers.py": ("test_each_worker_has_one_gpu",),
    "device/test_types.py": (
        "test_gemm_by_bits",
        "test_nvcc_takes_them_without_warnings_or_spills",
        "test_opencl[slm-*]",
        "test_sycl",
        "test_sycl_by_bits",
    ),
    "device/test_whole_calls.py": (
        "test_alpha_zero_where_k_is_folded",
        "test_batches_without_elements",
        "test_the_same_on_sycl",
        "test_zeros_and_what_is_not_read",
    ),
    "golden/test_documents.py": ("test_nvcc_takes_it",),
    "golden/test_presets.py": (
        "test_nvcc_for_each_target",
        "test_nvcc_takes_them_without_warnings_or_spills",
        "test_text_is_independent_of_hash_seed",
    ),
    "golden/test_projects.py": ("test_cuda_project_compiles", "test_sycl_project"),
    "golden/test_sycl.py": (
        "test_device_side",
        "test_device_side_of_programs",
        "test_device_side_of_transposes",
        "test_forms_hold_one_kernel",
        "test_host_side_of_kernels",
        "test_host_side_of_programs",
    ),
    "interp/test_async.py": (
        "test_layouts",
        "test_operands_read_across_tiles",
        "test_rings_of_asynchronous_copies",
    ),
    "interp/test_batches.py": ("test_nvcc_takes_arrays_of_addresses",),
    "interp/test_batches_of_boxes.py": ("test_nvcc_takes_boxes_of_batches_in_lines_of_several_widths",),
    "interp/test_every_schedule.py": ("test_draws",),
    "interp/test_packed.py": ("test_packed",),
    "interp/test_persistent.py": ("test_every_ring_and_number_of_groups",),
    "interp/test_planted_faults.py": ("test_all_of_the_faults",),
    "interp/test_presets.py": (
        "test_folded_sizes_and_factors[128x256x64-*]",
        "test_infinities_and_nans_propagate",
        "test_several_rounds_of_the_ring",
    ),
    "interp/test_random_schedules.py": (ALL,),
    "interp/test_twins.py": ("test_a_single_line_may_have_any_length",),
    "interp/test_vectors.py": (
        "test_each_row_of_c_is_asked_for_once_and_only_those_that_are_there",
        "test_every_form",
        "test_orders",
    ),
    "interp/test_vectors_epilogues.py": ("test_every_form",),
    "known_bugs/test_runtime.py": (
        "test_an_event_covers_the_first_kernel_only",
        "test_two_queues_share_what_parts_of_k_are_summed_in",
    ),
    "known_bugs/test_values.py": (
        "test_nan_in_c_comes_through_a_beta_of_zero",
        "test_sizes_of_7_and_64_with_padded_lines",
    ),
    "unit/test_bench.py": (
        "test_a_library_in_a_process_of_its_own",
        "test_pictures",
    ),
    "unit/test_box_stores.py": ("test_what_the_compiler_makes_of_it",),
    "unit/test_cli.py": (
        "test_completion",
        "test_stop_after_shows_every_kernel",
    ),
    "unit/test_cli_run.py": ("test_bench_on_a_cpu",),
    "unit/test_fuzz.py": (
        "test_a_few_cases",
        "test_what_fails_is_made_small",
    ),
    "unit/test_ptxas.py": ("test_emit",),
    "unit/test_cpu_panels.py": ("test_the_runtime_and_the_command_line_choose_by_one_rule",),
    "unit/test_sycl.py": ("test_lines_are_short",),
    "unit/test_tuning_replay.py": ("test_how_they_converge", "test_the_same_seed_searches_the_same"),
    "unit/test_variants.py": ("test_opencl_needs_no_twin",),
    "unit/test_warpgroup_matrix.py": (
        "test_instructions_of_the_main_loop",
        "test_nvcc_takes_every_order",
    ),
}

#: Of the slow ones, those that are quick all the same, a handful that stands for the rest.
QUICK_ALL_THE_SAME: dict[str, tuple[str, ...]] = {
    "device/test_batches.py": ("test_opencl[naive-*]",),
    "device/test_epilogues.py": ("test_vectors[cpu_6x64_copied-*]",),
    "device/test_presets.py": (
        "test_layouts[naive-*]",
        "test_parts_of_k[naive-*]",
    ),
    "device/test_runtime_calls.py": (
        "test_numpy[*-orders0-*]",
        "test_numpy[*-orders7-3-*]",
    ),
    "device/test_runtime_delivery.py": (
        "test_compile_a_preset[naive-*]",
        "test_module_of_its_own[naive-*]",
    ),
    "device/test_sycl_presets.py": (
        "test_from_usm_and_by_copies[naive-*]",
        "test_layouts[naive-*]",
        "test_transpose[16-*]",
    ),
    "device/test_sycl_programs.py": ("test_program[naive]",),
    "device/test_types.py": (
        "test_nvcc_takes_them_without_warnings_or_spills[float16*]",
        "test_sycl[*float16*]",
    ),
    "device/test_whole_calls.py": ("test_zeros_and_what_is_not_read[naive-*]",),
    "golden/test_documents.py": ("test_nvcc_takes_it[epilogues/bias_gelu_8x8]",),
    "golden/test_inspect.py": (
        "test_a_compiler_error_is_told_with_its_line[sm_80]",
        "test_local_memory_that_the_launch_decides_on_is_unknown[sm_80]",
    ),
    "golden/test_presets.py": (
        "test_nvcc_for_each_target[L3_SIMD_32x2_1x8-sm_75]",
        "test_nvcc_for_each_target[async_8x8_16x16-sm_80]",
        "test_nvcc_for_each_target[mbarrier_8x16_16x16-sm_90]",
    ),
    "golden/test_sycl.py": ("test_device_side[header]",),
    "golden/test_projects.py": (
        "test_all_headers_in_one_translation_unit[gcc]",
        "test_cuda_project_compiles[naive]",
        "test_sycl_project[bfloat16]",
    ),
    "interp/test_async.py": (
        "test_operands_read_across_tiles[*-2]",
        "test_rings_of_asynchronous_copies[*-2]",
    ),
    "interp/test_packed.py": ("test_packed[True-False-*]",),
    "interp/test_presets.py": ("test_several_rounds_of_the_ring[True-mbarrier_8x8_4x8_slices8]",),
    "interp/test_vectors.py": ("test_every_form[0.0-*]",),
    "interp/test_vectors_epilogues.py": ("test_every_form[copied-reads C]",),
    "unit/test_export.py": ("test_compiles_without_warnings[gcc]",),
    "unit/test_warpgroup_matrix.py": ("test_instructions_of_the_main_loop[wgmma_64x64_s8]",),
}

TABLES = (OF_EVERY_PRESET, OF_OTHERS_TOOLS, LONG, QUICK_ALL_THE_SAME)


def is_slow(file: str, function: str, name: str, preset: object) -> bool:
    """Whether a test is slow: of a file under `tests`, with its parameters in `name`, of a preset or of none."""
    if any(matches(name, pattern) for pattern in QUICK_ALL_THE_SAME.get(file, ())):
        return False
    if function in OF_EVERY_PRESET.get(file, ()) and preset not in ONE_OF_EACH:
        return True
    listed = (*OF_OTHERS_TOOLS.get(file, ()), *LONG.get(file, ()))
    return any(pattern in (function, ALL) or matches(name, pattern) for pattern in listed)


def matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern.replace("[", "[[]"))


def mark(items: Sequence[pytest.Item], tests: PurePath) -> None:
    """Give each slow test its marker."""
    for item in items:
        if isinstance(item, pytest.Function) and item.path.is_relative_to(tests):
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            preset = parameters.get("name", parameters.get("preset"))
            if is_slow(file_of(item, tests), item.originalname, item.name, preset):
                item.add_marker(pytest.mark.slow)


def file_of(item: pytest.Item, tests: PurePath) -> str:
    return item.path.relative_to(tests).as_posix()


def gone(items: Iterable[pytest.Item], tests: PurePath) -> list[str]:
    """What the tables name that is not in a file of which there are tests: it was renamed, and its tier is lost."""
    there: dict[str, set[str]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.path.is_relative_to(tests):
            there.setdefault(file_of(item, tests), {ALL}).update((item.originalname, item.name))
    return sorted(
        f"{file}::{pattern}"
        for table in TABLES
        for file, patterns in table.items()
        for pattern in patterns
        if file in there and not any(matches(name, pattern) for name in there[file])
    )
