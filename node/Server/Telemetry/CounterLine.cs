using System.Globalization;
using System.Text;
using Microsoft.Win32.SafeHandles;

namespace KvCluster.Node.Telemetry;

/// <summary>
/// The first line of a file in which the kernel counts something. The file stays open: to open it each time takes several calls and buffers of 16 KiB, and
/// twenty times a second that was a good part of what an idle node did. Any thread.
/// </summary>
internal sealed class CounterLine : IDisposable
{
    /// <summary>The most that is read, which is more than these lines have.</summary>
    public const int CharsMax = 1_024;

    private readonly SafeFileHandle? _file;

    /// <param name="path">The file. If it does not exist, the line is empty.</param>
    public CounterLine(string path)
    {
        try
        {
            _file = File.OpenHandle(path, FileMode.Open, FileAccess.Read, FileShare.ReadWrite | FileShare.Delete);
        }
        catch (Exception absent) when (absent is IOException or UnauthorizedAccessException)
        {
            // The file is missing on other operating systems and old kernels, and after the thread has ended. The value is then not known and reported as 0.
            _file = null;
        }
    }

    /// <summary>Reads the line as it is now.</summary>
    /// <param name="line">Receives it; has <see cref="CharsMax"/> characters.</param>
    /// <returns>Its length; 0 if it is not known.</returns>
    public int Read(Span<char> line)
    {
        if (_file is null)
            return 0;
        Span<byte> bytes = stackalloc byte[CharsMax];
        try
        {
            bytes = bytes[..RandomAccess.Read(_file, bytes, 0)];
        }
        catch (Exception gone) when (gone is IOException or UnauthorizedAccessException or ObjectDisposedException)
        {
            // The thread has ended, or the watch.
            return 0;
        }
        var end = bytes.IndexOf((byte)'\n');
        return Encoding.ASCII.GetChars(end < 0 ? bytes : bytes[..end], line);
    }

    public void Dispose() => _file?.Dispose();
}

/// <summary>What the kernel counts for one thread of this process.</summary>
/// <param name="id">The system's id of the thread.</param>
internal sealed class ThreadCounters(int id) : IDisposable
{
    /// <summary>The time that it ran, and that it waited for a processor.</summary>
    public CounterLine Scheduled { get; } = new(PathOf(id, "schedstat"));

    /// <summary>Among others its page faults.</summary>
    public CounterLine Stat { get; } = new(PathOf(id, "stat"));

    public void Dispose()
    {
        Scheduled.Dispose();
        Stat.Dispose();
    }

    private static string PathOf(int id, string file) => string.Create(CultureInfo.InvariantCulture, $"/proc/self/task/{id}/{file}");
}
