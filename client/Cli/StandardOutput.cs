using System.ComponentModel;
using System.Runtime.InteropServices;

namespace KvCluster.Cli;

/// <summary>
/// Writes to standard output with the system call. The console's own stream ignores a closed pipe, so that a scan would continue for nobody. A
/// <see cref="FileStream"/> keeps its own offset and would overwrite what others write to the same file.
/// </summary>
/// <remarks>On Windows it uses the console's stream.</remarks>
internal sealed class StandardOutput
{
    private const int Interrupted = 4;
    private const int BrokenPipe = 32;

    private readonly Stream? _console = OperatingSystem.IsWindows() ? Console.OpenStandardOutput() : null;

    /// <exception cref="IOException">It cannot be written: the pipe is closed, or the disk is full.</exception>
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
                throw error == BrokenPipe ? new ReaderGoneException() : new IOException(new Win32Exception(error).Message);
        }
    }

    [DllImport("libc", EntryPoint = "write", SetLastError = true)]
    private static extern nint WriteSome(int handle, in byte bytes, nint count);
}
