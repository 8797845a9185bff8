// The directories of replicas that left their shards, kept until their space is needed: should the record that said so have been wrong, what they hold is
// still there. Nobody reads them; an operator may. A loop on the thread pool looks for room; what cannot be deleted is told and tried again.
using KvCluster.Node.Runtime;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Hosting;

/// <summary>Gives the space of retired replicas back, the longest unused first, while the disk has little room.</summary>
internal sealed class RetiredReplicas : IAsyncDisposable
{
    /// <summary>Retired replicas are kept while at least a fifth of the file system is free: checkpoints, journals and a new replica have room, and no alert of a full disk fires.</summary>
    private const int FreeShare = 5;

    /// <summary>A disk that fills up is seen in time: at 200 MB/s ten seconds are 2 GB.</summary>
    private static readonly TimeSpan Interval = TimeSpan.FromSeconds(10);

    private readonly string _path;
    private readonly Func<(long Free, long Total)> _room;
    private readonly ILogger _log;
    private readonly BackgroundLoop _loop;
    private string _said = "";

    /// <param name="path">The folder with a directory a replica.</param>
    /// <param name="room">Bytes free on its file system for this process, and its size.</param>
    /// <param name="log">One line a directory that is deleted.</param>
    public RetiredReplicas(string path, Func<(long Free, long Total)> room, ILogger log)
    {
        _path = path;
        _room = room;
        _log = log;
        _loop = new BackgroundLoop("the room of retired replicas", stop =>
        {
            MakeRoom(stop);
            return Task.CompletedTask;
        }, static () => Interval, log);
    }

    /// <summary>Deletes retired replicas while there is little room. One caller at a time.</summary>
    public void MakeRoom(CancellationToken cancellationToken)
    {
        try
        {
            while (!cancellationToken.IsCancellationRequested && Directory.Exists(_path) && HasLittleRoom()
                && new DirectoryInfo(_path).EnumerateDirectories().MinBy(static retired => retired.LastWriteTimeUtc) is { } oldest)
            {
                oldest.Delete(recursive: true);
                HostLog.RetiredDeleted(_log, oldest.Name);
            }
            _said = "";
        }
        catch (Exception failure) when (failure is IOException or UnauthorizedAccessException)
        {
            if (failure.Message != _said)
                HostLog.RetiredNotDeleted(_log, failure.Message);
            _said = failure.Message;
        }
    }

    public ValueTask DisposeAsync() => _loop.DisposeAsync();

    private bool HasLittleRoom() => _room() is var (free, total) && free < total / FreeShare;
}
