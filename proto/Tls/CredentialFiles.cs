// TLS files and what they held when they were last valid. The files are read again by whoever makes a connection, and in a server by a timer. Changes are
// detected by content and not by time, because Kubernetes replaces mounted secrets through a symbolic link, whose times say nothing. Any thread.
namespace KvCluster.Tls;

/// <summary>TLS credentials that are reloaded when their files change.</summary>
internal sealed class CredentialFiles
{
    /// <summary>How long new connections may use what was read before.</summary>
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

    /// <summary>The credentials for new connections.</summary>
    public TlsCredentials Current => _current;

    /// <summary>Why the present content of the files is not used, but the previous one; null if it is used.</summary>
    public string? Failure => _failure;

    /// <summary>The credentials for new connections, read again if that was not done for some seconds.</summary>
    public TlsCredentials Fresh()
    {
        if (_time.GetElapsedTime(Volatile.Read(ref _readTimestamp)) >= FreshTime)
            Refresh();
        return _current;
    }

    /// <summary>Reads the files. If their content is valid, it is used from now on.</summary>
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
