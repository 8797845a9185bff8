using System.Text;

namespace KvCluster.Local;

/// <summary>
/// A file of lines that begins anew with each run. Each line is written at the end that the file has by then: whoever shortens it, as <c>truncate</c> and
/// <c>logrotate</c> do, must not leave a hole of zero bytes in front of the next line. A line for which the disk has no room is lost; a full disk ends neither
/// the log nor the cluster. Any thread.
/// </summary>
internal sealed class LogLines(string path) : IDisposable
{
    private readonly Lock _lock = new();
    private readonly FileStream _file = new(path, FileMode.Create, FileAccess.Write, FileShare.ReadWrite, bufferSize: 0);
    private bool _isLosing;
    private bool _isClosed;

    /// <summary>Adds a line. The first one that is lost is told to the terminal.</summary>
    public void Add(string line)
    {
        var bytes = Encoding.UTF8.GetBytes(line + "\n");
        lock (_lock)
        {
            if (_isClosed)
                return;
            try
            {
                _file.Seek(0, SeekOrigin.End);
                _file.Write(bytes);
                _isLosing = false;
            }
            catch (IOException e)
            {
                if (!_isLosing)
                    Console.Error.WriteLine($"kv-local: {path} cannot be written, so lines are missing until it can: {e.Message}");
                _isLosing = true;
            }
        }
    }

    /// <inheritdoc/>
    public void Dispose()
    {
        lock (_lock)
        {
            _isClosed = true;
            _file.Dispose();
        }
    }
}
