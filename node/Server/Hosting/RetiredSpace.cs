// The directories of replicas that left their shards, kept until their space is needed. If the record that removed them was wrong, their contents still exist.
// The node does not read them; an operator may. A loop on the thread pool checks the free space. A failed deletion is logged and retried.
using KvCluster.Node.Runtime;
using KvCluster.ServiceDefaults.Logs;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Hosting;

/// <summary>Frees the space of retired replicas, the longest unused first, while the disk has little.</summary>
internal sealed class RetiredSpace : IAsyncDisposable
{
    /// <summary>
    /// Retired replicas are kept while at least a fifth of the file system is free. Then checkpoints, journals and a new replica have space, and no alert
    /// of a full disk fires.
    /// </summary>
    private const int FreeShare = 5;

    /// <summary>Short enough to notice a disk that fills up: at 200 MB/s ten seconds are 2 GB.</summary>
    private static readonly TimeSpan Interval = TimeSpan.FromSeconds(10);

    private readonly string _path;
    private readonly Func<(long Free, long Total)> _room;
    private readonly ILogger _log;
    private readonly BackgroundLoop _loop;
    private readonly OncePerReason _failures = new();

    /// <param name="path">The directory that contains one directory per replica.</param>
    /// <param name="room">Bytes on its file system that are free for this process, and its size.</param>
    /// <param name="timers">Timers that the node's replicas use as well.</param>
    /// <param name="log">Receives one line per deleted directory.</param>
    public RetiredSpace(string path, Func<(long Free, long Total)> room, TimeProvider timers, ILogger log)
    {
        _path = path;
        _room = room;
        _log = log;
        _loop = new BackgroundLoop("the space of retired replicas", stop =>
        {
            MakeRoom(stop);
            return Task.CompletedTask;
        }, static () => CommonMoments.Until(Interval), timers, log);
    }

    /// <summary>Whether a replica of the node cannot be rebuilt for lack of space. A large one may need more than the share that is kept free.</summary>
    public Func<bool> IsRoomLacking { private get; init; } = static () => false;

    /// <summary>Deletes retired replicas while there is little space, and one if a replica lacks some, which then tries again. One caller at a time.</summary>
    public void MakeRoom(CancellationToken cancellationToken)
    {
        try
        {
            for (var isLacking = IsRoomLacking(); !cancellationToken.IsCancellationRequested && Directory.Exists(_path) && (isLacking || HasLittleRoom())
                && new DirectoryInfo(_path).EnumerateDirectories().MinBy(static retired => retired.LastWriteTimeUtc) is { } oldest; isLacking = false)
            {
                oldest.Delete(recursive: true);
                HostLog.RetiredDeleted(_log, oldest.Name);
            }
            _failures.Forget();
        }
        catch (Exception failure) when (failure is IOException or UnauthorizedAccessException)
        {
            if (_failures.MaySay(failure.Message))
                HostLog.RetiredNotDeleted(_log, failure.Message);
        }
    }

    public ValueTask DisposeAsync() => _loop.DisposeAsync();

    private bool HasLittleRoom() => _room() is var (free, total) && free < total / FreeShare;
}
