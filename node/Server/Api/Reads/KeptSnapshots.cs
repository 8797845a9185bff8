using System.Buffers.Binary;
using System.Security.Cryptography;
using KvCluster.Storage.DataFile;
using KvCluster.Wire;

namespace KvCluster.Node.Api.Reads;

/// <summary>
/// Snapshots that are kept between two pages of a list, and after the stream of a scan broke, so that their callers can go on in the same state. Their number
/// and age are bounded: a caller who comes too late is told, and starts again. Used by <see cref="KvScans"/> and <see cref="KvQueries"/>; any thread.
/// </summary>
/// <param name="clock">For ages.</param>
/// <param name="ageMax">The maximum age of a snapshot, counted from when it was opened.</param>
internal sealed class KeptSnapshots(TimeProvider clock, TimeSpan ageMax) : IDisposable
{
    /// <summary>Bytes of a token.</summary>
    public const int TokenBytes = sizeof(ulong);

    /// <summary>More would pin pages for callers of whom most do not come back.</summary>
    private const int KeptMax = 256;

    /// <summary>How long a snapshot waits for its caller, who is about to send the next request.</summary>
    private static readonly TimeSpan IdleMax = TimeSpan.FromSeconds(10);

    private static readonly TimeSpan LookInterval = TimeSpan.FromMilliseconds(250);

    private readonly Lock _gate = new();
    private readonly Dictionary<ulong, Kept> _kept = [];
    private ITimer? _timer;
    private bool _isDisposed;

    /// <summary>A token that no other snapshot has, and nobody can guess.</summary>
    public static ulong NewToken() => BinaryPrimitives.ReadUInt64LittleEndian(RandomNumberGenerator.GetBytes(TokenBytes));

    /// <summary>Keeps a snapshot, which belongs to this object from now on. If there are too many, the one that has waited longest ends.</summary>
    public void Keep(ulong token, in Kept kept)
    {
        var ended = kept;
        lock (_gate)
        {
            if (!_isDisposed && !IsTooOld(kept))
            {
                ended = default;
                if (_kept.Count == KeptMax)
                    _kept.Remove(_kept.MinBy(static one => one.Value.KeptTimestamp).Key, out ended);
                _kept.Add(token, kept with { KeptTimestamp = clock.GetTimestamp() });
                _timer ??= clock.CreateTimer(static self => ((KeptSnapshots)self!).EndOld(), this, LookInterval, LookInterval);
            }
        }
        if (ended.OpenedTimestamp != 0)
            ended.Read.Snapshot.Dispose();
    }

    /// <summary>
    /// Returns the snapshot of a token to its caller, to whom it belongs from now on. False if it is not kept any more, or is of another shard.
    /// </summary>
    public bool TryTake(ulong token, ShardId shard, out Kept kept)
    {
        lock (_gate)
            return _kept.TryGetValue(token, out kept) && kept.Shard.Shard == shard && _kept.Remove(token);
    }

    /// <summary>For how long a snapshot is kept that is given to this object now, unless there are too many or the pages that it holds are needed.</summary>
    public TimeSpan TimeLeft(in Kept kept)
    {
        var left = ageMax - clock.GetElapsedTime(kept.OpenedTimestamp);
        if (left <= TimeSpan.Zero)
            return TimeSpan.Zero;
        return left < IdleMax ? left : IdleMax;
    }

    /// <summary>Whether a snapshot must end.</summary>
    public bool IsTooOld(in Kept kept) => IsTooOld(kept.Read.Snapshot, kept.OpenedTimestamp);

    /// <inheritdoc cref="IsTooOld(in Kept)"/>
    public bool IsTooOld(in ReadSnapshot snapshot, long openedTimestamp) => snapshot.IsTooOld || clock.GetElapsedTime(openedTimestamp) >= ageMax;

    /// <summary>Ends all snapshots, and those that are given to it later.</summary>
    public void Dispose()
    {
        lock (_gate)
        {
            _isDisposed = true;
            _timer?.Dispose();
        }
        EndOld();
    }

    private void EndOld()
    {
        List<Kept> ended = [];
        lock (_gate)
        {
            foreach (var (token, kept) in _kept)
            {
                if (!_isDisposed && !IsTooOld(kept) && clock.GetElapsedTime(kept.KeptTimestamp) < IdleMax)
                    continue;
                ended.Add(kept);
                _kept.Remove(token);
            }
            if (_kept.Count == 0)
            {
                _timer?.Dispose();
                _timer = null;
            }
        }
        ended.ForEach(static one => one.Read.Snapshot.Dispose());
    }

    /// <summary>A snapshot with what its answers need.</summary>
    /// <param name="Shard">Its shard, with the lineage.</param>
    /// <param name="Read">The snapshot, and the age that its first answer had.</param>
    /// <param name="OpenedTimestamp">When it was opened, as a timestamp of the clock, which is never 0.</param>
    internal readonly record struct Kept(LineageShard Shard, OpenedRead Read, long OpenedTimestamp)
    {
        /// <summary>What an answer of this moment says of the snapshot: its age is that of the first answer and the time since then.</summary>
        public OpenedRead ReadNow(TimeProvider clock) =>
            Read.AgeUs is { } age ? Read with { AgeUs = age + (ulong)clock.GetElapsedTime(OpenedTimestamp).TotalMicroseconds } : Read;

        /// <summary>When it was last given to be kept.</summary>
        public long KeptTimestamp { get; init; }
    }
}
