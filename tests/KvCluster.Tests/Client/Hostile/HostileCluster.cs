using Google.Protobuf.WellKnownTypes;
using Google.Rpc;
using Grpc.Core;
using KvCluster.V1;

namespace KvCluster.Tests.Client.Hostile;

/// <summary>
/// Nodes that store one <see cref="HostileModel"/>, or routers before it, and what befalls them and their network: leaders move and maps lag behind, nodes take
/// calls and never answer, serve some kinds of streams and not others, answer after the deadline, refuse connections or cannot be reached, and forget sessions.
/// What they answer is true.
/// </summary>
internal sealed class HostileCluster
{
    private const int NodeCount = 3;
    private const int RefusesInOneOf = 25;
    private static readonly string[] Splits = ["g", "p"];
    private static readonly string[] LaterSplits = ["b", "i", "r"];

    private readonly List<HostileLinks> _links = [];
    private readonly bool _mayDivide;

    /// <param name="clock">The time.</param>
    /// <param name="random">Decides what happens.</param>
    /// <param name="isRouted">Its addresses are those of routers.</param>
    /// <param name="mayDivide">Whether shards are divided.</param>
    public HostileCluster(HostileClock clock, Random random, bool isRouted, bool mayDivide)
    {
        (Clock, Random, IsRouted, _mayDivide) = (clock, random, isRouted, mayDivide);
        Model = new HostileModel(Splits, NodeCount);
        Nodes = [.. Enumerable.Range(1, NodeCount).Select(static node => new HostileNode((uint)node))];
        foreach (var node in Nodes)
            node.Known = Model.Routes;
    }

    public HostileClock Clock { get; }

    public Random Random { get; }

    public HostileModel Model { get; }

    public IReadOnlyList<HostileNode> Nodes { get; }

    public bool IsRouted { get; }

    /// <summary>Whether anything is wrong with it.</summary>
    public bool IsHostile { get; private set; }

    /// <summary>The network of another client.</summary>
    public HostileLinks Link()
    {
        var links = new HostileLinks(this);
        _links.Add(links);
        return links;
    }

    public HostileNode NodeAt(string address) => Nodes.Single(node => node.Address == address);

    public V1.ShardMap MapOf(HostileNode node) => new()
    {
        Cluster = "hostile",
        ClusterId = "1",
        Complete = true,
        // Copies, as on a wire.
        Shards = { node.Known.Select(static route => route.Clone()) },
        Nodes = { Nodes.Select(static one => new NodeAddress { Node = one.Id, Address = one.Address }) },
    };

    public void Begin()
    {
        IsHostile = true;
        Clock.After(Random.Next(100), Trouble);
    }

    /// <summary>From now on nothing is wrong any more, and every node knows the map.</summary>
    public void Calm()
    {
        IsHostile = false;
        foreach (var route in Model.Routes.Where(static route => route.Leader == 0))
            Model.Lead(route.Shard, 1);
        foreach (var node in Nodes)
        {
            node.Recover();
            node.Known = Model.Routes;
            Tell(node);
        }
    }

    /// <summary>What a node does next with a stream, in how many milliseconds; null: nothing.</summary>
    public long? DelayOf(Mood mood) => mood switch
    {
        Mood.Fine => 1 + Random.Next(4),
        Mood.Slow => 20 + Random.Next(300),
        Mood.Mixed when Random.Next(6) != 0 => 1 + Random.Next(Random.Next(4) == 0 ? 800 : 20),
        _ => (long?)null,
    };

    /// <summary>Brings a call to a node, and its answer back, unless one of them is lost.</summary>
    public void Deliver(HostileNode node, Call call, Action<Reply> answer)
    {
        var (thereMs, backMs) = WayOf(node.Calls == Mood.Mixed ? (Mood)Random.Next((int)Mood.Mixed + 1) : node.Calls, call.TimeoutMs);
        if (thereMs is not { } there || node.IsCut)
            return;
        Clock.After(there, () =>
        {
            if (node.IsDown || node.IsCut)
                return;
            if (!node.IsBehind)
                node.ReplicaMoment = Model.Moment;
            var reply = (IsHostile && Random.Next(RefusesInOneOf) == 0 ? Refusal(node, call) : null) ?? Model.Serve(call, node, IsRouted);
            if (backMs is not { } back)
                return;
            Clock.After(back, () =>
            {
                if (!node.IsCut)
                    answer(reply);
            });
        });
    }

    // How long a call is on its way, and its answer; null: it is lost. One that is late may come after the deadline, and be served all the same.
    private (long? ThereMs, long? BackMs) WayOf(Mood mood, long timeoutMs)
    {
        long? soon = 1 + Random.Next(3);
        long? late = timeoutMs - Random.Next(100) + Random.Next(400);
        return mood switch
        {
            Mood.Fine => (soon, soon),
            Mood.Slow => (soon + Random.Next(250), soon),
            Mood.Deaf => (null, soon),
            Mood.Mute => (soon, null),
            _ => Random.Next(2) == 0 ? (soon, late) : (late, soon),
        };
    }

    // Of some refusals it is known that nothing was applied, of others not.
    private Reply? Refusal(HostileNode node, Call call) => Random.Next(6) switch
    {
        0 => FakeNode.Refuse(call, StatusCode.Unavailable, "BUSY"),
        1 => FakeNode.Refuse(
            call, StatusCode.Unavailable, "BUSY", "no", new RetryInfo { RetryDelay = Duration.FromTimeSpan(TimeSpan.FromMilliseconds(Random.Next(3_000))) }),
        2 => FakeNode.Refuse(call, StatusCode.Unavailable, "STOPPING"),
        3 => FakeNode.Refuse(call, StatusCode.Unavailable, "NO_LEADER"),
        4 when V1.Method.Get == call.Method => FakeNode.Refuse(call, StatusCode.DeadlineExceeded, "REPLICA_BEHIND"),
        5 when call.Method is V1.Method.Put or V1.Method.Increment or V1.Method.Write => OutcomeUnknown(node, call),
        _ => null,
    };

    // A leader that was replaced while it committed the change.
    private Reply OutcomeUnknown(HostileNode node, Call call)
    {
        if (Random.Next(2) == 0)
            Model.Serve(call, node, IsRouted);
        return FakeNode.Refuse(call, StatusCode.Unknown, "OUTCOME_UNKNOWN", "unknown");
    }

    private void Trouble()
    {
        if (!IsHostile)
            return;
        var node = Nodes[Random.Next(Nodes.Count)];
        switch (Random.Next(12))
        {
            case 0 or 1:
                Lead();
                break;
            case 2:
                Model.Lead(AnyShard(), 0);
                SpreadMap();
                Clock.After(50 + Random.Next(900), Lead);
                break;
            case 3 or 4:
                For(1_500, node, static (one, mood) => one.Calls = mood);
                break;
            case 5:
                For(1_500, node, static (one, mood) => one.Scans = mood);
                For(1_500, node, static (one, mood) => one.Watches = mood);
                break;
            case 6:
                For(2_500, node, static (one, mood) => one.Maps = mood);
                node.IsBehind = true;
                Clock.After(Random.Next(800), () => node.IsBehind = false);
                break;
            case 7 or 8:
                Break(node, "connection reset");
                break;
            case 9:
                node.IsDown = true;
                Break(node, "connection reset");
                Clock.After(100 + Random.Next(900), () => node.IsDown = false);
                break;
            case 10:
                Cut(node);
                break;
            default:
                if (_mayDivide && Random.Next(2) == 0)
                    Divide();
                else
                    Model.EndSession(Random);
                break;
        }
        Clock.After(10 + Random.Next(250), Trouble);
    }

    private uint AnyShard() => Model.Routes[Random.Next(Model.Routes.Count)].Shard;

    // Every shard without a leader gets one, or any shard another one.
    private void Lead()
    {
        if (!IsHostile)
            return;
        var shard = Model.Routes.FirstOrDefault(static route => route.Leader == 0)?.Shard ?? AnyShard();
        Model.Lead(shard, (uint)Random.Next(NodeCount) + 1);
        SpreadMap();
    }

    private void Divide()
    {
        Model.Split(LaterSplits[Random.Next(LaterSplits.Length)], (uint)Random.Next(NodeCount) + 1);
        SpreadMap();
    }

    // The nodes hear of it one after the other, and clients from them.
    private void SpreadMap()
    {
        foreach (var node in Nodes)
        {
            Clock.After(1 + Random.Next(600), () =>
            {
                node.Known = Model.Routes;
                Tell(node);
            });
        }
    }

    private void Tell(HostileNode node)
    {
        foreach (var links in _links)
            links.MapChanged(node);
    }

    private void Break(HostileNode node, string why)
    {
        foreach (var links in _links.ToArray())
            links.Break(node, why);
    }

    // Nobody is told before the keep-alive of the connection ends, if at all.
    private void Cut(HostileNode node)
    {
        node.IsCut = true;
        Clock.After(300 + Random.Next(2_500), () =>
        {
            if (node.IsCut)
                Break(node, "no answer to a ping");
        });
        Clock.After(200 + Random.Next(2_000), () => node.IsCut = false);
    }

    private void For(int mostMs, HostileNode node, Action<HostileNode, Mood> set)
    {
        set(node, (Mood)Random.Next((int)Mood.Mixed + 1));
        Clock.After(100 + Random.Next(mostMs), () => set(node, Mood.Fine));
    }
}
