using System.Globalization;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>What a store has, as sorted dictionaries, and what requests do to it.</summary>
internal sealed class ModelContent
{
    public SortedDictionary<string, (string Value, Etag Etag, bool Expires)> Keys { get; private init; } = new(StringComparer.Ordinal);

    public SortedDictionary<string, (SortedSet<string> Members, Etag Etag)> Sets { get; private init; } = new(StringComparer.Ordinal);

    /// <summary>The last number given under each prefix.</summary>
    public Dictionary<string, ulong> Numbers { get; private init; } = [];

    public ModelContent Copy() => new()
    {
        Keys = new(Keys, StringComparer.Ordinal),
        Sets = new(
            Sets.ToDictionary(static set => set.Key, static set => (new SortedSet<string>(set.Value.Members, StringComparer.Ordinal), set.Value.Etag)),
            StringComparer.Ordinal),
        Numbers = new(Numbers),
    };

    public bool Holds(ModelCondition condition)
    {
        var exists = Keys.TryGetValue(condition.Key, out var known);
        return condition.Kind switch
        {
            ConditionKind.Absent => !exists,
            ConditionKind.Exists => exists,
            ConditionKind.EtagEquals => known.Etag == condition.Etag,
            ConditionKind.ValueEquals => exists && known.Value == condition.Text,
            ConditionKind.EtagRelates => exists && Relates(known.Etag.CompareTo(condition.Etag), condition.Relation),
            ConditionKind.ValueRelates => exists && Relates(string.CompareOrdinal(known.Value, condition.Text), condition.Relation),
            ConditionKind.SetHas => HasMember(condition.Key, condition.Text),
            ConditionKind.SetLacks => !HasMember(condition.Key, condition.Text),
            ConditionKind.Range => Range(condition.Key, condition.End) is var range
                && (condition.Keys ?? (ulong)range.Count) == (ulong)range.Count
                && (condition.Greatest is not { } greatest || greatest == range.Select(static entry => entry.Etag).DefaultIfEmpty().Max()),
            _ => throw new ArgumentOutOfRangeException(nameof(condition)),
        };
    }

    /// <summary>Makes the changes of a request, one operation after the other, and returns how it ends. If not applied, some of them are made.</summary>
    /// <param name="operations">What it does.</param>
    /// <param name="before">The etag before the first change.</param>
    /// <param name="leavesOut">Whether changes of sets that change nothing take no etag.</param>
    /// <param name="part">How many keys or members the only operation removes, if not all.</param>
    public ModelOutcome Apply(IEnumerable<ModelOperation> operations, Etag before, bool leavesOut, int part = int.MaxValue)
    {
        var outcome = new ModelOutcome { Etag = before };
        foreach (var operation in operations)
        {
            outcome.Outcome = Apply(operation, outcome, leavesOut, part);
            if (outcome.Outcome != WriteOutcome.Applied)
                break;
        }
        return outcome;
    }

    private WriteOutcome Apply(ModelOperation operation, ModelOutcome outcome, bool leavesOut, int part)
    {
        var (key, text) = (operation.Key, operation.Text);
        var expires = operation.TtlMilliseconds > 0;
        var isChange = operation.Code switch
        {
            RequestOperation.SetAdd => !leavesOut || !HasMember(key, text),
            RequestOperation.SetRemove => !leavesOut || HasMember(key, text),
            RequestOperation.SetDelete => !leavesOut || Sets.ContainsKey(key),
            RequestOperation.Touch => Keys.ContainsKey(key),
            _ => !operation.IsRead,
        };
        outcome.Etag = isChange ? outcome.Etag with { Change = outcome.Etag.Change + 1 } : outcome.Etag;
        var etag = outcome.Etag;
        Etag? told = isChange ? etag : null;
        switch (operation.Code)
        {
            case RequestOperation.PutOnTerms when operation.IsNumbered:
                var number = Numbers[key] = Numbers.GetValueOrDefault(key) + 1;
                var numbered = key + number.ToString("d20", CultureInfo.InvariantCulture);
                Keys[numbered] = (text, etag, expires);
                outcome.Add(told, entries: (numbered, "", etag));
                break;
            case RequestOperation.Put or RequestOperation.PutOnTerms:
                Keys[key] = (text, etag, expires && operation.Code == RequestOperation.PutOnTerms);
                outcome.Add(told);
                break;
            case RequestOperation.Delete:
                var existed = Keys.Remove(key);
                outcome.KeysDeleted += existed ? 1 : 0;
                outcome.Add(told, existed);
                break;
            case RequestOperation.DeleteRange:
                var range = Range(key, operation.End).Take(part).ToArray();
                foreach (var entry in range)
                    Keys.Remove(entry.Key);
                outcome.KeysDeleted += range.Length;
                outcome.Add(told, number: range.Length);
                break;
            case RequestOperation.Touch:
                if (Keys.TryGetValue(key, out var touched))
                    Keys[key] = touched with { Expires = expires };
                outcome.Add(told, Keys.ContainsKey(key));
                break;
            case RequestOperation.Increment:
                return Increment(operation, told, outcome);
            case RequestOperation.SetAdd or RequestOperation.SetRemove:
                var had = HasMember(key, text);
                ChangeSet(key, text, operation.Code == RequestOperation.SetAdd, etag);
                outcome.MembersChanged += had == (operation.Code == RequestOperation.SetRemove) ? 1 : 0;
                outcome.Add(told, had, CountOf(key));
                break;
            case RequestOperation.SetDelete:
                outcome.MembersRemoved += RemoveFirst(key, part, etag);
                outcome.Add(told, number: CountOf(key));
                break;
            case RequestOperation.Get:
                outcome.Add(null, entries: Keys.TryGetValue(key, out var found) ? [(key, found.Value, found.Etag)] : []);
                break;
            case RequestOperation.Scan:
                var entries = Range(key, operation.End);
                outcome.Add(null, more: entries.Count > operation.Limit, entries: entries.Take(operation.Limit)
                    .Select(entry => (entry.Key, operation.KeysOnly ? "" : entry.Value, entry.Etag)));
                break;
            case RequestOperation.SetGet:
                outcome.Add(null, text.Length == 0 ? null : HasMember(key, text), CountOf(key));
                break;
            default:
                throw new ArgumentOutOfRangeException(nameof(operation));
        }
        return WriteOutcome.Applied;
    }

    private WriteOutcome Increment(ModelOperation operation, Etag? told, ModelOutcome outcome)
    {
        var exists = Keys.TryGetValue(operation.Key, out var stored);
        if (!long.TryParse(exists ? stored.Value : "0", NumberStyles.AllowLeadingSign, CultureInfo.InvariantCulture, out var number))
            return WriteOutcome.NotANumber;
        var sum = (Int128)number + operation.By;
        if (sum > long.MaxValue || sum < long.MinValue)
            return WriteOutcome.NumberOverflow;
        Keys[operation.Key] = (((long)sum).ToString(CultureInfo.InvariantCulture), outcome.Etag, stored.Expires);
        outcome.Add(told, number: (long)sum);
        return WriteOutcome.Applied;
    }

    private List<(string Key, string Value, Etag Etag)> Range(string from, string to) =>
        [.. Keys.Where(entry => string.CompareOrdinal(entry.Key, from) >= 0 && (to.Length == 0 || string.CompareOrdinal(entry.Key, to) < 0))
            .Select(static entry => (entry.Key, entry.Value.Value, entry.Value.Etag))];

    private bool HasMember(string set, string member) => Sets.TryGetValue(set, out var stored) && stored.Members.Contains(member);

    private long CountOf(string set) => Sets.TryGetValue(set, out var stored) ? stored.Members.Count : 0;

    private void ChangeSet(string key, string member, bool isAdded, Etag etag)
    {
        var members = Sets.TryGetValue(key, out var set) ? set.Members : new SortedSet<string>(StringComparer.Ordinal);
        if (isAdded ? members.Add(member) : members.Remove(member))
            Sets[key] = (members, etag);
        if (members.Count == 0)
            Sets.Remove(key);
    }

    private int RemoveFirst(string key, int count, Etag etag)
    {
        if (!Sets.Remove(key, out var set))
            return 0;
        if (count >= set.Members.Count)
            return set.Members.Count;
        Sets[key] = (new SortedSet<string>(set.Members.Skip(count), StringComparer.Ordinal), etag);
        return count;
    }

    private static bool Relates(int order, ConditionRelation relation) => relation switch
    {
        ConditionRelation.Equal => order == 0,
        ConditionRelation.NotEqual => order != 0,
        ConditionRelation.Less => order < 0,
        _ => order > 0,
    };
}

/// <summary>How a request ends in the model.</summary>
internal sealed class ModelOutcome
{
    public WriteOutcome Outcome { get; set; } = WriteOutcome.Applied;

    /// <summary>The etag of the last change.</summary>
    public Etag Etag { get; set; }

    public int KeysDeleted { get; set; }

    /// <summary>Members that were added or removed one by one.</summary>
    public int MembersChanged { get; set; }

    /// <summary>Members that went with their sets.</summary>
    public int MembersRemoved { get; set; }

    public List<string> Results { get; } = [];

    public void Add(
        Etag? etag, bool? existed = null, long? number = null, bool more = false, params IEnumerable<(string Key, string Value, Etag Etag)> entries) =>
            Results.Add(ModelOperation.ResultOf(etag, existed, number, more, entries));
}
