using System.ComponentModel;
using System.Runtime.InteropServices;

namespace KvCluster.Cli;

/// <summary>
/// Standard output by the bare system call. The console's own stream swallows a closed pipe, after which a scan would go on for nobody; a
/// <see cref="FileStream"/> writes at offsets of its own, and so over what others write to the same file.
/// </summary>
/// <remarks>Elsewhere than on Unix it is the console's stream.</remarks>
internal sealed class StandardOutput
{
    private const int Interrupted = 4;

    private readonly Stream? _console = OperatingSystem.IsWindows() ? Console.OpenStandardOutput() : null;

    /// <exception cref="IOException">Nobody takes it any more: the pipe is closed, the disk is full.</exception>
    public void Write(ReadOnlySpan<byte> bytes)
    {
        if (_console is not null)
        {
            _console.Write(bytes);
            return;
        }

        if (!StandardHandles.IsOpen(StandardHandles.Output))
            throw new IOException("it is closed");
        while (!bytes.IsEmpty)
        {
            var written = WriteSome(StandardHandles.Output, in MemoryMarshal.GetReference(bytes), bytes.Length);
            if (written >= 0)
                bytes = bytes[(int)written..];
            else if (Marshal.GetLastPInvokeError() is var error && error != Interrupted)
                throw new IOException(new Win32Exception(error).Message);
        }
    }

    [DllImport("libc", EntryPoint = "write", SetLastError = true)]
    private static extern nint WriteSome(int handle, in byte bytes, nint count);
}
