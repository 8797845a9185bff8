using System.Globalization;
using KvCluster.Client;
using Microsoft.Extensions.Configuration;

namespace KvCluster.Examples;

/// <summary>
/// Numbered letters, of which one of several processes writes some at a time. The setting <c>Batch</c> says how many, and may change meanwhile. Each letter is
/// written once, because a write has the conditions that the process still leads and that nobody has written since it looked. All keys have one prefix, so
/// that they are in one shard, which such a write needs.
/// </summary>
internal sealed class Newsletter(IKvClient store, IConfiguration settings)
{
    /// <summary>The settings below this prefix are those of the newsletter.</summary>
    public const string SettingsPrefix = "newsletter/settings/";

    private const string Last = "newsletter/last";
    private const string Letters = "newsletter/letters/";

    private readonly KvElection _election = new(store, "newsletter/leader");

    /// <summary>Stands as a candidate, and writes letters whenever it leads, until all are written.</summary>
    /// <param name="candidate">Names the process.</param>
    /// <param name="letters">How many there are to be.</param>
    /// <param name="stopping">Ends it.</param>
    public Task RunAsync(string candidate, long letters, CancellationToken stopping) =>
        _election.RunAsync(candidate, (leadership, leading) => LeadAsync(candidate, letters, leadership, leading), stopping);

    /// <summary>Who leads; null: nobody.</summary>
    public async Task<string?> FindLeaderAsync(CancellationToken cancellationToken = default) =>
        (await _election.FindLeaderAsync(cancellationToken))?.Candidate.ToUtf8String();

    /// <summary>How many letters were written.</summary>
    public Task<long> CountAsync(CancellationToken cancellationToken = default) => store.CountAsync(Letters, cancellationToken: cancellationToken);

    private async Task LeadAsync(string candidate, long letters, KvLock leadership, CancellationToken leading)
    {
        while (true)
        {
            try
            {
                var last = await store.GetAsync(Last, cancellationToken: leading);
                var written = last.Found ? last.Value.ToInt64() : 0;
                if (written >= letters)
                    return;
                var next = Math.Min(letters, written + Batch());
                var write = new KvWrite()
                    .If(leadership.Held)
                    .If(KvCondition.EtagEquals(last.Etag, Last))
                    .Put(Last, KvValue.FromInt64(next));
                for (var letter = written + 1; letter <= next; letter++)
                    write.Put($"{Letters}{letter:d8}", $"of {next - written} by {candidate}");
                await store.WriteAsync(write, cancellationToken: leading);
            }
            catch (KvConditionFailedException failure) when (failure.ConditionIndex == 1)
            {
                // An earlier write of this process, whose answer was lost, was applied after all. A failure of the first condition ends the leadership.
            }
            catch (Exception failure) when (failure is KvOutcomeUnknownException or KvUnavailableException)
            {
                // The cluster was away. The next look tells what was written.
            }
            await Task.Delay(TimeSpan.FromMilliseconds(20), leading);
        }
    }

    // The provider follows the cluster, so this is the present setting.
    private int Batch() =>
        int.TryParse(settings["Batch"], NumberStyles.None, CultureInfo.InvariantCulture, out var batch) ? Math.Clamp(batch, 1, 1_000) : 1;
}
