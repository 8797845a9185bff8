// TLS files and what they held when they were last fit for use. Files are read again by whoever makes a connection, and in a server by a timer. By content, not by
// time: Kubernetes replaces mounted secrets by a symbolic link, whose times tell nothing. Any thread.
namespace KvCluster.Tls;

/// <summary>TLS credentials that follow their files.</summary>
internal sealed class CredentialFiles
{
    /// <summary>How long new connections may be made with what was read before.</summary>
    private static readonly TimeSpan FreshTime = TimeSpan.FromSeconds(2);

    private readonly Lock _lock = new();
    private readonly TlsFiles _files;
    private readonly TimeProvider _time;
    private TlsFileContents _contents;
    private long _readTimestamp;
    private volatile TlsCredentials _current;
    private volatile string? _failure;

    /// <exception cref="UnusableFileException">A file is not usable.</exception>
    public CredentialFiles(TlsFiles files, TimeProvider time)
    {
        _files = files;
        _time = time;
        _contents = TlsFileContents.Read(files);
        _current = TlsCredentials.Parse(files, _contents, time.GetUtcNow());
        _readTimestamp = time.GetTimestamp();
    }

    /// <summary>What new connections are made with.</summary>
    public TlsCredentials Current => _current;

    /// <summary>Why the files as they are now are not used, but what they held before; null: they are.</summary>
    public string? Failure => _failure;

    /// <summary>What new connections are made with, read anew if that was not done for some seconds.</summary>
    public TlsCredentials Fresh()
    {
        if (_time.GetElapsedTime(Volatile.Read(ref _readTimestamp)) >= FreshTime)
            Refresh();
        return _current;
    }

    /// <summary>Reads the files; what they hold is used from now on if it is usable.</summary>
    /// <returns>Whether <see cref="Current"/> was replaced.</returns>
    public bool Refresh()
    {
        lock (_lock)
        {
            Volatile.Write(ref _readTimestamp, _time.GetTimestamp());
            try
            {
                var contents = TlsFileContents.Read(_files);
                var isChanged = contents != _contents;
                if (isChanged)
                    _current = TlsCredentials.Parse(_files, contents, _time.GetUtcNow());
                (_contents, _failure) = (contents, null);
                return isChanged;
            }
            catch (UnusableFileException failure)
            {
                _failure = failure.Message;
                return false;
            }
        }
    }
}
