// What gemmgen asks of a SYCL runtime, behind C functions that ctypes can call.
//
// Functions return 0 (or a handle) on success. On failure they return 1 (or null), and gemmgen_text() says why. It also
// holds what a function has to say on success. Both are of the calling thread.

#include <sycl/ext/oneapi/experimental/syclbin_kernel_bundle.hpp>
#include <sycl/kernel_bundle.hpp>
#include <sycl/properties/queue_properties.hpp>
#include <sycl/queue.hpp>
#include <sycl/usm.hpp>
#include <sycl/vector.hpp>

#include <cstdint>
#include <exception>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace syclex = sycl::ext::oneapi::experimental;

namespace {

thread_local std::string text;
thread_local std::vector<char> content;

template <typename Function> int guarded(Function function)
{
    try {
        text.clear();
        function();
        return 0;
    } catch (const std::exception &error) {
        text = error.what();
    } catch (...) {
        text = "an exception of an unknown type";
    }
    return 1;
}

std::vector<sycl::device> devices()
{
    std::vector<sycl::device> found;
    for (const auto &platform : sycl::platform::get_platforms()) {
        for (const auto &device : platform.get_devices()) {
            found.push_back(device);
        }
    }
    return found;
}

// A queue reports what went wrong on the device where it is waited for.
void rethrow(sycl::exception_list errors)
{
    for (const auto &error : errors) {
        std::rethrow_exception(error);
    }
}

const char *kind(const sycl::device &device)
{
    return device.is_cpu() ? "cpu" : device.is_gpu() ? "gpu" : "accelerator";
}

void describe(sycl::device device, bool standard, std::ostream &out)
{
    using namespace sycl::info;
    const auto platform = device.get_platform();
    const auto sizes = device.get_info<sycl::info::device::sub_group_sizes>();
    out << device.get_info<sycl::info::device::name>() << '\t' << kind(device) << '\t'
        << platform.get_info<sycl::info::platform::name>() << '\t' << device.get_backend() << '\t'
        << device.get_info<sycl::info::device::driver_version>() << '\t'
        << device.get_info<sycl::info::device::vendor>() << '\t';
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        out << (i ? "," : "") << sizes[i];
    }
    out << '\t' << device.get_info<sycl::info::device::local_mem_size>() << '\t'
        << device.get_info<sycl::info::device::max_work_group_size>() << '\t'
        << device.has(sycl::aspect::usm_shared_allocations) << '\t'
        << device.has(sycl::aspect::usm_system_allocations) << '\t'
        << device.ext_oneapi_can_build(syclex::source_language::sycl) << '\t' << standard << '\t'
        << device.has(sycl::aspect::fp16) << '\t' << device.has(sycl::aspect::fp64) << '\t'
        << device.get_info<sycl::info::device::max_compute_units>() << '\t'
        << device.get_info<sycl::info::device::native_vector_width_float>() << '\t'
        << device.get_info<sycl::info::device::global_mem_cache_size>() << '\t'
        << device.has(sycl::aspect::ext_intel_matrix) << '\n';
}

struct Kernels {
    sycl::kernel_bundle<sycl::bundle_state::executable> bundle;
    std::vector<sycl::kernel> kernels;
};

std::vector<std::string> lines(const char *text)
{
    std::vector<std::string> found;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
        found.push_back(line);
    }
    return found;
}

} // namespace

extern "C" {

// One argument of a kernel.
struct gemmgen_argument {
    std::int32_t kind; // 0: int, 1: float, 2: address, 3: double, 4: long long, 5: float2, 6: double2
    std::int64_t integer;
    double number;
    double imaginary;
    void *address;
};

const char *gemmgen_text() { return text.c_str(); }

// What the last gemmgen_compile made: SYCLBIN.
const char *gemmgen_content(std::size_t *size)
{
    *size = content.size();
    return content.data();
}

// The devices that the runtime shows, one a line, fields between tabs, in the order of `describe`.
int gemmgen_devices()
{
    return guarded([] {
        std::ostringstream out;
        const auto found = devices();
        if (!found.empty()) {
            const sycl::device standard;
            for (const auto &device : found) {
                describe(device, device == standard, out);
            }
        }
        text = out.str();
    });
}

// Compiles for a device, given by its number, with options that end in newlines; the text is the compiler's log.
int gemmgen_compile(std::size_t device, const char *source, const char *name, int as_object,
                    const char *options)
{
    std::string log;
    const int failed = guarded([&] {
        const std::vector<sycl::device> chosen{devices().at(device)};
        const sycl::context context(chosen);
        const auto properties =
            syclex::properties{syclex::save_log(&log), syclex::build_options(lines(options))};
        auto bundle = syclex::create_kernel_bundle_from_source(
            context, syclex::source_language::sycl, std::string(source));
        if (as_object) {
            content = syclex::compile(bundle, chosen, properties).ext_oneapi_get_content();
            return;
        }
        auto built = syclex::build(bundle, chosen, properties);
        if (!built.ext_oneapi_has_kernel(name)) {
            throw std::runtime_error("the device's own compiler made nothing of the kernel");
        }
        content = built.ext_oneapi_get_content();
    });
    text = failed ? text + '\n' + log : log;
    return failed;
}

void *gemmgen_queue(std::size_t device)
{
    std::unique_ptr<sycl::queue> queue;
    guarded([&] {
        queue = std::make_unique<sycl::queue>(
            devices().at(device), rethrow,
            sycl::property_list{sycl::property::queue::enable_profiling()});
    });
    return queue.release();
}

// A queue in the context of another, which measures time.
void *gemmgen_queue_beside(const sycl::queue *other)
{
    std::unique_ptr<sycl::queue> queue;
    guarded([&] {
        queue = std::make_unique<sycl::queue>(
            other->get_context(), other->get_device(), rethrow,
            sycl::property_list{sycl::property::queue::enable_profiling()});
    });
    return queue.release();
}

// Waits for all that is queued.
int gemmgen_finish(sycl::queue *queue)
{
    return guarded([&] { queue->wait_and_throw(); });
}

void gemmgen_free_queue(sycl::queue *queue) { delete queue; }

// The number of the queue's device among `devices`.
int gemmgen_device_of(const sycl::queue *queue, std::size_t *number)
{
    return guarded([&] {
        const auto found = devices();
        for (std::size_t i = 0; i < found.size(); ++i) {
            if (found[i] == queue->get_device()) {
                *number = i;
                return;
            }
        }
        throw std::runtime_error("the queue's device is not among those of ONEAPI_DEVICE_SELECTOR");
    });
}

// The kernels of SYCLBIN whose names are given, each ended by a newline.
void *gemmgen_kernels(const sycl::queue *queue, const char *bytes, std::size_t size,
                      const char *names)
{
    std::unique_ptr<Kernels> loaded;
    guarded([&] {
        std::vector<char> copy(bytes, bytes + size);
        auto bundle = syclex::get_kernel_bundle<sycl::bundle_state::executable>(
            queue->get_context(), {queue->get_device()}, sycl::span<char>(copy.data(), copy.size()));
        std::vector<sycl::kernel> kernels;
        for (const auto &name : lines(names)) {
            kernels.push_back(bundle.ext_oneapi_get_kernel(name));
        }
        loaded = std::make_unique<Kernels>(Kernels{bundle, kernels});
    });
    return loaded.release();
}

void gemmgen_free_kernels(Kernels *kernels) { delete kernels; }

void *gemmgen_allocate(const sycl::queue *queue, std::size_t bytes)
{
    void *memory = nullptr;
    guarded([&] {
        memory = sycl::malloc_shared(bytes, *queue);
        if (memory == nullptr) {
            throw std::runtime_error("out of memory");
        }
    });
    return memory;
}

void gemmgen_free(const sycl::queue *queue, void *memory)
{
    guarded([&] { sycl::free(memory, *queue); });
}

// What the queue's context says of an address: 0 unknown, 1 host, 2 device, 3 shared.
int gemmgen_usm_type(const sycl::queue *queue, const void *address)
{
    int type = 0;
    guarded([&] {
        switch (sycl::get_pointer_type(address, queue->get_context())) {
        case sycl::usm::alloc::host:
            type = 1;
            break;
        case sycl::usm::alloc::device:
            type = 2;
            break;
        case sycl::usm::alloc::shared:
            type = 3;
            break;
        default:
            break;
        }
    });
    return type;
}

// Runs one of the kernels, on so many layers of groups (0: on two dimensions), rows and columns, and waits for it; the nanoseconds that the device took.
int gemmgen_launch(sycl::queue *queue, const Kernels *kernels, std::size_t number,
                   const gemmgen_argument *arguments, int count, const std::size_t *groups,
                   const std::size_t *group, std::uint64_t *nanoseconds)
{
    return guarded([&] {
        const sycl::range<2> local(group[0], group[1]);
        const sycl::range<2> global(groups[1] * group[0], groups[2] * group[1]);
        const sycl::range<3> layered_local(1, local[0], local[1]);
        const sycl::range<3> layered_global(groups[0], global[0], global[1]);
        sycl::event event = queue->submit([&](sycl::handler &handler) {
            for (int i = 0; i < count; ++i) {
                switch (arguments[i].kind) {
                case 0:
                    handler.set_arg(i, std::int32_t(arguments[i].integer));
                    break;
                case 1:
                    handler.set_arg(i, float(arguments[i].number));
                    break;
                case 3:
                    handler.set_arg(i, arguments[i].number);
                    break;
                case 5:
                    handler.set_arg(i, sycl::float2(float(arguments[i].number),
                                                    float(arguments[i].imaginary)));
                    break;
                case 6:
                    handler.set_arg(i, sycl::double2(arguments[i].number, arguments[i].imaginary));
                    break;
                case 4:
                    handler.set_arg(i, static_cast<long long>(arguments[i].integer));
                    break;
                default:
                    handler.set_arg(i, arguments[i].address);
                }
            }
            const sycl::kernel &kernel = kernels->kernels.at(number);
            if (groups[0] == 0) {
                handler.parallel_for(sycl::nd_range<2>(global, local), kernel);
            } else {
                handler.parallel_for(sycl::nd_range<3>(layered_global, layered_local), kernel);
            }
        });
        event.wait_and_throw();
        queue->wait_and_throw();
        using sycl::info::event_profiling::command_end;
        using sycl::info::event_profiling::command_start;
        *nanoseconds = event.get_profiling_info<command_end>() -
                       event.get_profiling_info<command_start>();
    });
}
}
