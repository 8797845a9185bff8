using System.Buffers;
using KvCluster.Storage.Context;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Maintenance;

/// <summary>
/// Finds pages of the data file that have left memory since they were checked, so that their next reader reads each as a whole, by a call that can fail, and
/// compares its checksum again. Otherwise the reader would wait for a page fault for each part of it, a sector that has gone bad since would end the process,
/// and what the disk returns this time would be trusted. Works in steps on the checkpoint executor. Started and disposed on the writer executor.
/// </summary>
/// <remarks>
/// Asking costs a millisecond per GiB in memory and up to 12 per GiB that is not, and the rests are long in comparison. As long as nothing leaves memory, which
/// is the case on most nodes, the passes become rare.
/// </remarks>
internal sealed class EvictionSweep : IDisposable
{
    /// <summary>Pages of the system for which a step asks: 256 MiB of 4 KiB each.</summary>
    private const int StepSystemPages = 64 << 10;

    /// <summary>Rest after a step, in multiples of its duration, so that a sweep takes at most a fiftieth of a core.</summary>
    private const int RestTimes = 50;

    private static readonly TimeSpan PassRestMin = TimeSpan.FromSeconds(1);
    private static readonly TimeSpan PassRestMax = TimeSpan.FromSeconds(30);

    /// <summary>Long rests end at multiples of this.</summary>
    internal static readonly TimeSpan MomentsApart = TimeSpan.FromSeconds(5);

    private readonly StoreContext _context;
    private readonly PageSpace _space;
    private readonly StoreLifecycle _life;
    private readonly Action _found;
    private readonly WorkAction _step;
    private readonly ITimer _rest;
    private volatile bool _hasEnded;
    private long _next;
    private long _forgotten;
    private long _forgottenBefore;
    private TimeSpan _passRest = PassRestMin;

    /// <summary>Creates the sweep, which waits for <see cref="Start"/>.</summary>
    /// <param name="context">The shard's executors and clock.</param>
    /// <param name="space">The pages.</param>
    /// <param name="life">Ended by a failure.</param>
    /// <param name="found">Called on the checkpoint executor after each step that found pages which have left memory.</param>
    public EvictionSweep(StoreContext context, PageSpace space, StoreLifecycle life, Action found)
    {
        (_context, _space, _life, _found) = (context, space, life, found);
        _step = new WorkAction(Step);
        _rest = context.Time.CreateTimer(_ => context.Checkpoints.Post(_step), null, Timeout.InfiniteTimeSpan, Timeout.InfiniteTimeSpan);
    }

    /// <summary>Pages found to have left memory since the store was opened. Any thread.</summary>
    public long PagesForgotten => Interlocked.Read(ref _forgotten);

    /// <summary>Starts the first pass after the shortest rest.</summary>
    public void Start() => RestFor(PassRestMin);

    /// <summary>Stops the sweep: no further step begins.</summary>
    public void Dispose()
    {
        _hasEnded = true;
        _rest.Dispose();
    }

    /// <summary>
    /// A rest that ends at a common moment, if it is long: at the one nearest to its end. Otherwise each of a node's hundred shards would wake a timer and a
    /// checkpoint thread every half minute, at a time of its own.
    /// </summary>
    internal static TimeSpan Aligned(TimeSpan rest, TimeSpan now)
    {
        if (rest < 2 * MomentsApart)
            return rest;
        var moments = (now + rest + (MomentsApart / 2)).Ticks / MomentsApart.Ticks;
        return TimeSpan.FromTicks(moments * MomentsApart.Ticks) - now;
    }

    private void Step()
    {
        // The end of the store passes through this executor after this flag is set, so no file that was closed is asked about.
        if (_hasEnded)
            return;
        var inMemory = ArrayPool<byte>.Shared.Rent(StepSystemPages);
        try
        {
            var began = _context.Time.GetTimestamp();
            var before = _forgotten;
            _next = _space.ForgetEvicted(_next, inMemory.AsSpan(0, StepSystemPages), ref _forgotten);
            if (_forgotten > before)
                _found();
            var rest = _context.Time.GetElapsedTime(began) * RestTimes;
            if (_next == 0)
            {
                _passRest = _forgotten != _forgottenBefore ? PassRestMin : TimeSpan.FromTicks(Math.Min(2 * _passRest.Ticks, PassRestMax.Ticks));
                _forgottenBefore = _forgotten;
                rest = Aligned(rest + _passRest, _context.Time.GetElapsedTime(0));
            }
            RestFor(rest);
        }
        catch (Exception failure)
        {
            _context.Writer.Post(new WorkAction(() => _life.Fail(failure)));
        }
        finally
        {
            ArrayPool<byte>.Shared.Return(inMemory);
        }
    }

    private void RestFor(TimeSpan time)
    {
        if (!_hasEnded)
            _rest.Change(time, Timeout.InfiniteTimeSpan);
    }
}
