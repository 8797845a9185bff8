using System.Text;

namespace KvCluster.Local;

/// <summary>
/// A file of lines that begins anew with each run. Each line is written at the end that the file has by then: whoever shortens it, as <c>truncate</c> and <c>logrotate</c> do, must not
/// leave a hole of zero bytes in front of the next line. Any thread.
/// </summary>
internal sealed class LogLines(string path) : IDisposable
{
    private readonly Lock _lock = new();
    private readonly FileStream _file = new(path, FileMode.Create, FileAccess.Write, FileShare.ReadWrite, bufferSize: 0);

    /// <summary>Adds a line.</summary>
    /// <exception cref="IOException">The disk is full.</exception>
    public void Add(string line)
    {
        var bytes = Encoding.UTF8.GetBytes(line + "\n");
        lock (_lock)
        {
            _file.Seek(0, SeekOrigin.End);
            _file.Write(bytes);
        }
    }

    /// <inheritdoc/>
    public void Dispose()
    {
        lock (_lock)
            _file.Dispose();
    }
}
