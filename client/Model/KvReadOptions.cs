namespace KvCluster.Client;

/// <summary>What is special about a call that reads.</summary>
public record KvReadOptions : KvCallOptions
{
    /// <summary>How up to date the answer must be, and which replicas may serve it; null means <see cref="KvClientOptions.Read"/>.</summary>
    public KvReadMode? Read { get; init; }

    /// <summary>
    /// A read that any replica may serve (<see cref="KvReadMode.Replica"/>, <see cref="KvReadMode.Session"/>, <see cref="KvReadMode.Stale"/>) is sent to
    /// another replica, too, if there is no answer after this time, which is at most a day. The first answer counts, and the other call is cancelled. Null
    /// means that one replica is asked at a time.
    /// </summary>
    /// <remarks>
    /// It has no effect on a read that the leader serves, nor with <see cref="KvCallOptions.NoRetry"/>, and changes do not have it. Choose a time within which
    /// most reads are answered, so that few are sent twice. They are charged to what the client may repeat, about 1,000 calls a second, so that a cluster that
    /// is slow altogether does not get every read twice. Through a gateway the read is sent again through the next router, which by chance may choose the same
    /// replica.
    /// </remarks>
    /// <exception cref="ArgumentOutOfRangeException">It is not greater than zero, or longer than a day.</exception>
    public TimeSpan? HedgeAfter
    {
        get;
        init => field = Checked(value, "The time after which a read is sent again");
    }

    /// <summary>A read in a mode, of which nothing else is special; null means <see cref="KvClientOptions.Read"/>.</summary>
    public static implicit operator KvReadOptions(KvReadMode? read) => new() { Read = read };
}
