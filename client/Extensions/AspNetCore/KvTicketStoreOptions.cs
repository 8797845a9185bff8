namespace KvCluster.Extensions.AspNetCore;

/// <summary>The options of the store of tickets. They are read once, when it is made.</summary>
public sealed class KvTicketStoreOptions
{
    /// <summary>What all keys of the store begin with in the cluster, and no others.</summary>
    public string Prefix { get; set; } = "tickets/";

    /// <summary>How long a ticket stays that has no expiry of its own. As cookies of ASP.NET Core.</summary>
    public TimeSpan Expiration { get; set; } = TimeSpan.FromDays(14);
}
